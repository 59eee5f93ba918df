// Package mover carries a backup between volumes and a store: the work of the Jobs.
//
//	Setup      probe the store, make or open the repository
//	Export     disks + captured state + documents ──► one commit
//	Resolve    a commit and its keys ──► what is in it, proven complete
//	Import     a commit and its keys ──► fresh volumes, read back
//	Catalogue  a page of the commits ──► what they are, and what is missing of their chains
//	Maintain   one pass of garbage collection
//	Verify     a part of the packs, read back
//	KeepState  captured state ──► a claim, for a backup without a store
//
// The keys come from a mounted identity, or, better, as tickets from somebody who has
// the identity elsewhere (Holder).
//
// It knows files, devices and a repository, and no Kubernetes: cmd/mover tells it
// where things are mounted and reports what it returns. Every task may be run again
// after any crash: it finds its own commit, its own keys, its own half-written files.
package mover

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/changedblocks"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// The errors of this package, besides those of objectstore, repository, firmware and
// probe, which come through. Ask with errors.Is.
var (
	// ErrMount: a file that the Job should have mounted is absent or empty.
	ErrMount = errors.New("mounted file is missing")
	// ErrVolume: a volume to be exported or filled is not what the task says.
	ErrVolume = errors.New("unexpected volume")
	// ErrStateDiffers: the firmware state is not the one that was captured.
	ErrStateDiffers = errors.New("firmware state is not the captured one")
	// ErrIncomplete: the backup lacks a volume that the task needs, or the task
	// leaves out one that the backup has.
	ErrIncomplete = errors.New("backup and task disagree about the volumes")
	// ErrTask: the task itself makes no sense.
	ErrTask = errors.New("malformed task")
	// ErrStartAgain: the task must be started again to see what it has just made.
	ErrStartAgain = errors.New("start again")
)

// Paths are where the Job finds its mounts.
type Paths struct {
	Credentials, MaintenanceKey, CA, RepositoryKeys, PreviousKeys, Identities, State, Spec, Volumes, Devices, Tokens string
	// CustomerKey holds the key of SSE-C, WebIdentity the token of the service account.
	CustomerKey, WebIdentity string
}

// Env is what all tasks work with.
type Env struct {
	Paths Paths
	// Store that the task is about; nil where it needs none.
	Store objectstore.Store
	// Lock that maintenance extends; nil for none.
	Lock *config.Lock
	// DocumentsVolume is the name of the tree volume that the documents travel in.
	DocumentsVolume string
	// Holder is asked for keys by tasks that have no identity mounted; nil where nobody can be.
	Holder Holder
	// Known is what the cluster knows of the repository's signing keys; restores expect the store to show it.
	Known repository.Known
	// ReadBytesPerSecond bounds how fast volumes are read; 0 for no bound.
	ReadBytesPerSecond int64
	// Progress is called often and must not block; nil is allowed.
	Progress func(Progress)
	// Stop, once closed, has an export end with repository.ErrStopped as soon as what was sent can be found again;
	// nil never does.
	Stop <-chan struct{}
	// Note is told what is not as it should be and stops nothing; nil is allowed.
	Note func(format string, args ...any)
	// Track reaches a driver's SnapshotMetadataService; nil dials it.
	Track func(changedblocks.Service) (Tracker, error)
}

// Tracker is asked what of a snapshot need be read; see package changedblocks.
type Tracker interface {
	Allocated(ctx context.Context, of changedblocks.Snapshot, size int64) (iter.Seq2[repository.Extent, error], error)
	Changed(ctx context.Context, of changedblocks.Snapshot, baseHandle string, size int64) (iter.Seq2[repository.Extent, error], error)
	Close() error
}

// Progress counts bytes. Done is of Total; Read and Sent are what was moved.
type Progress struct {
	Total, Done, Read, Sent int64
}

func (e Env) progress(p Progress) {
	if e.Progress != nil {
		e.Progress(p)
	}
}

func (e Env) note(format string, args ...any) {
	if e.Note != nil {
		e.Note(format, args...)
	}
}

// readDir reads the files of a mounted Secret or ConfigMap. Names with a leading dot
// are the kubelet's own. ErrMount if there is none.
func readDir(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMount, err)
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		body, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMount, err)
		}
		files[e.Name()] = body
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: %q is empty", ErrMount, dir)
	}
	return files, nil
}

// repositoryKeys reads the mounted key set. ErrMount if it is not mounted.
func (e Env) repositoryKeys() (*repository.Keys, error) { return keysIn(e.Paths.RepositoryKeys) }

func keysIn(dir string) (*repository.Keys, error) {
	files, err := readDir(dir)
	if err != nil {
		return nil, fmt.Errorf("repository keys: %w", err)
	}
	k, err := keys.FromSecret(files)
	if err != nil {
		return nil, fmt.Errorf("repository keys: %w", err)
	}
	return k, nil
}

// identities reads every identity of the mounted Secret, whatever its members are called.
func (e Env) identities() ([]age.Identity, error) {
	files, err := readDir(e.Paths.Identities)
	if err != nil {
		return nil, fmt.Errorf("identities: %w", err)
	}
	var all []age.Identity
	for name, body := range files {
		found, err := keys.ParseIdentities(body)
		if err != nil {
			return nil, fmt.Errorf("identities: member %q: %w", name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}
