package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// Exit codes.
const (
	exitWell     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitDamaged  = 3
	exitNotFound = 4
)

var (
	errUsage    = errors.New("wrong usage")
	errDamaged  = errors.New("damaged")
	errNotFound = errors.New("not found")
)

// outcome is an error whose text is for a person and whose kind decides the exit code.
type outcome struct {
	kind error
	text string
	hint string
	err  error
}

func (o *outcome) Error() string { return o.text }

func (o *outcome) Unwrap() []error { return []error{o.kind, o.err} }

func usagef(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &outcome{kind: errUsage, text: err.Error(), hint: "kubectl vmstate --help lists the commands, each of which has --help as well", err: err}
}

func exitCode(err error) int {
	switch {
	case errors.Is(err, errUsage):
		return exitUsage
	case is(err, errDamaged, repository.ErrDamaged, repository.ErrMissing, repository.ErrNotAuthentic, repository.ErrVerify,
		objectstore.ErrCorrupted):
		return exitDamaged
	case is(err, errNotFound, repository.ErrNoCommit, repository.ErrNotInitialised, objectstore.ErrNoBucket, fs.ErrNotExist),
		apierrors.IsNotFound(err):
		return exitNotFound
	default:
		return exitFailed
	}
}

func is(err error, any ...error) bool {
	for _, e := range any {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// explain prints an error and what to do about it.
func explain(w io.Writer, err error) {
	for i, line := range strings.Split(err.Error(), "\n") {
		if i == 0 {
			line = "error: " + line
		}
		fmt.Fprintln(w, "kubectl-vmstate:", line)
	}
	if h := hintFor(err); h != "" {
		fmt.Fprintln(w, "kubectl-vmstate: hint:", h)
	}
}

func hintFor(err error) string {
	if o, ok := errors.AsType[*outcome](err); ok && o.hint != "" {
		return o.hint
	}
	switch {
	case errors.Is(err, repository.ErrWrongIdentity):
		return "give the identity of one of the recipients named above with --identity"
	case errors.Is(err, keys.ErrIdentity):
		return "kubectl vmstate keygen writes a file that --identity takes"
	case errors.Is(err, repository.ErrNotInitialised):
		return "check bucket, prefix or directory: a store has the object format.json at its top"
	case errors.Is(err, objectstore.ErrDenied):
		return "the credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; they must be allowed to read and list"
	case errors.Is(err, objectstore.ErrUnreachable):
		return "check --endpoint, the network, and --ca-file if the server's certificate is from an authority of its own"
	case errors.Is(err, repository.ErrNoCommit):
		return "kubectl vmstate list shows what there is"
	case exitCode(err) == exitDamaged:
		return "kubectl vmstate list shows other backups; keep the store as it is, it may be evidence"
	case apierrors.IsForbidden(err):
		return "ask the cluster's administrator for the role edit in this namespace"
	}
	return ""
}
