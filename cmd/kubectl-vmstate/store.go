package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"filippo.io/age"
	"github.com/spf13/pflag"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// storeFlags say where a store is that is read without a cluster, and with which identity.
type storeFlags struct {
	directory                        string
	bucket, endpoint, prefix, region string
	addressing, caFile               string
	identities                       []string
	signingKey                       string
}

func (f *storeFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.directory, "dir", "", "directory that holds a copy of a store's prefix")
	flags.StringVar(&f.bucket, "bucket", "", "bucket of a store; credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN")
	flags.StringVar(&f.endpoint, "endpoint", "", "S3 server of the bucket, with its scheme")
	flags.StringVar(&f.prefix, "prefix", "", "prefix of the store in the bucket")
	flags.StringVar(&f.region, "region", os.Getenv("AWS_REGION"), "region of the bucket")
	flags.StringVar(&f.addressing, "addressing", string(s3store.Path), "Path or VirtualHosted")
	flags.StringVar(&f.caFile, "ca-file", os.Getenv("AWS_CA_BUNDLE"), "certificates to trust beside those of the system")
	flags.StringSliceVar(&f.identities, "identity", nil, "file with an age identity that opens the backups")
	flags.StringVar(&f.signingKey, "signing-key", "", "status.signingKey of the VMStateStore: proves that the backups are that cluster's")
}

func (f *storeFlags) given() bool { return f.directory != "" || f.bucket != "" }

// open opens the store and what it holds.
func (f *storeFlags) open(ctx context.Context) (*repository.Repository, error) {
	identities, err := readIdentities(f.identities)
	if err != nil {
		return nil, err
	}
	rootKey, err := f.rootKey()
	if err != nil {
		return nil, err
	}
	store, err := f.objects()
	if err != nil {
		return nil, err
	}
	repo, err := repository.OpenWithIdentities(ctx, store, identities, rootKey)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.place(), err)
	}
	return repo, nil
}

// readIdentities reads every identity of the files.
func readIdentities(files []string) ([]age.Identity, error) {
	if len(files) == 0 {
		return nil, usagef("say with --identity which file holds the age identity")
	}
	var text [][]byte
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read identity: %w", err)
		}
		text = append(text, content)
	}
	return keys.ParseIdentities(bytes.Join(text, []byte("\n")))
}

func (f *storeFlags) rootKey() ([]byte, error) {
	if f.signingKey == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(f.signingKey)
	if err != nil || len(key) != 32 {
		return nil, usagef("--signing-key is 32 bytes in base64, as status.signingKey of the VMStateStore shows it")
	}
	return key, nil
}

func (f *storeFlags) place() string {
	if f.directory != "" {
		return fmt.Sprintf("directory %q", f.directory)
	}
	return fmt.Sprintf("bucket %q at %s", path.Join(f.bucket, f.prefix), f.endpoint)
}

func (f *storeFlags) objects() (objectstore.Store, error) {
	switch {
	case f.directory != "" && f.bucket != "":
		return nil, usagef("--dir and --bucket exclude each other")
	case f.directory != "":
		if _, err := os.Stat(f.directory); err != nil {
			return nil, fmt.Errorf("open directory: %w", err)
		}
		return dirstore.New(f.directory), nil
	case f.endpoint == "":
		return nil, usagef("--bucket needs --endpoint, as in https://s3.example.com")
	}
	options := s3store.Options{
		Endpoint: f.endpoint, Bucket: f.bucket, Prefix: f.prefix, Region: f.region, Addressing: s3store.Addressing(f.addressing),
		AccessKeyID: os.Getenv("AWS_ACCESS_KEY_ID"), SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
	}
	if f.caFile != "" {
		bundle, err := os.ReadFile(f.caFile)
		if err != nil {
			return nil, fmt.Errorf("read certificates: %w", err)
		}
		options.CABundle = bundle
	}
	return s3store.New(options)
}

// splitVM splits namespace/name.
func splitVM(vm string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(vm, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usagef("--vm is namespace/name as it was backed up, not %q", vm)
	}
	return namespace, name, nil
}

func viewOfCommit(c *repository.Commit) backupView {
	v := backupView{
		ID: shortID(c.Digest), Namespace: c.Backup.Namespace, Name: c.Backup.Name, VM: c.VM.Namespace + "/" + c.VM.Name,
		Ready: true, SizeBytes: c.LogicalBytes, SentBytes: c.StoredBytes, Sequence: int64(c.Sequence), Key: c.Key, Digest: c.Digest,
		Authenticated: &c.Authenticated,
	}
	created := c.Created.UTC()
	v.Taken = &created
	// The moment is a record for people; a backup of a later version, whose moment reads otherwise, is still a backup.
	var moment v1alpha1.Moment
	if err := json.Unmarshal(c.Moment, &moment); err == nil && moment.Disks != "" {
		v.setMoment(moment)
	}
	for _, volume := range c.Volumes {
		v.Volumes = append(v.Volumes, volumeView{
			Name: volume.Name, Role: volume.Role, Outcome: string(v1alpha1.VolumeIncluded), SizeBytes: volume.Size, UsedBytes: volume.UsedBytes,
		})
	}
	return v
}

func (a *app) listStore(ctx context.Context, vm string) error {
	if vm != "" {
		if _, _, err := splitVM(vm); err != nil {
			return err
		}
	}
	repo, err := a.store.open(ctx)
	if err != nil {
		return err
	}
	var views []backupView
	var broken []error
	for c, err := range repo.Commits(ctx) {
		if err != nil {
			broken = append(broken, err)
			continue
		}
		if vm == "" || vm == c.VM.Namespace+"/"+c.VM.Name {
			views = append(views, viewOfCommit(c))
		}
	}
	if err := a.printViews(views, true); err != nil {
		return err
	}
	if len(broken) > 0 {
		return fmt.Errorf("%d of the records in %s cannot be used: %w", len(broken), a.store.place(), errors.Join(broken...))
	}
	return nil
}

// find is the backup of that id, of one virtual machine if vm says which.
func find(ctx context.Context, repo *repository.Repository, vm, id string) (*repository.Commit, error) {
	if id == "latest" {
		namespace, name, err := splitVM(vm)
		if err != nil {
			return nil, err
		}
		return repo.Latest(ctx, namespace, name)
	}
	var found []*repository.Commit
	var broken []error
	for c, err := range repo.Commits(ctx) {
		switch {
		case err != nil:
			broken = append(broken, err)
		case (vm == "" || vm == c.VM.Namespace+"/"+c.VM.Name) && names(id, c, vm != ""):
			found = append(found, c)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, usagef("%q names %d backups; give more digits of the id", id, len(found))
	default:
		err := fmt.Errorf("%w: %q", repository.ErrNoCommit, id)
		return nil, errors.Join(append([]error{err}, broken...)...)
	}
}

// minDigits of a digest that name a backup.
const minDigits = 8

// names says whether id is the commit's: its digest's first digits, its key, or its number among those of one
// virtual machine.
func names(id string, c *repository.Commit, oneVM bool) bool {
	return len(id) >= minDigits && strings.HasPrefix(c.Digest, id) || id == c.Key || id == path.Base(c.Key) ||
		oneVM && id == strconv.FormatUint(c.Sequence, 10)
}

func (a *app) showStore(ctx context.Context, vm, id string) error {
	repo, err := a.store.open(ctx)
	if err != nil {
		return err
	}
	c, err := find(ctx, repo, vm, id)
	if err != nil {
		return err
	}
	v := viewOfCommit(c)
	checked := repo.Check(ctx, c)
	if checked == nil {
		v.Findings = []string{"complete: every record is authentic, every object is there with its size"}
	}
	if err := a.printView(v); err != nil {
		return err
	}
	if checked != nil {
		return fmt.Errorf("backup %s is not whole: %w", v.ID, checked)
	}
	return nil
}
