package repository

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// opened is a commit with what reading it needs.
type opened struct {
	ref    CommitRef
	header commit.Header
	record *commit.Record
	epoch  *keys.Epoch
	digest commit.Digest
}

func (o *opened) nodes() *index.Nodes { return index.NewNodes(o.epoch.Set, o.header.VM) }

func (o *opened) volume(name string) (*commit.Volume, error) {
	for i := range o.record.Volumes {
		if o.record.Volumes[i].Name == name {
			return &o.record.Volumes[i], nil
		}
	}
	return nil, fmt.Errorf("%w: backup %q has no volume %q", ErrInvalid, o.ref.Key, name)
}

// readCommit reads and proves one record. Every error names the key.
func (r *Repository) readCommit(ctx context.Context, ref CommitRef) (*opened, error) {
	o, err := r.tryCommit(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("commit %q: %w", ref.Key, err)
	}
	return o, nil
}

// readSigned is readCommit for who asks what is stored, not what may be restored: a backup whose signing key is
// distrusted has its objects all the same.
func (r *Repository) readSigned(ctx context.Context, ref CommitRef) (*opened, error) {
	o, err := r.signedCommit(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("commit %q: %w", ref.Key, err)
	}
	return o, nil
}

func (r *Repository) tryCommit(ctx context.Context, ref CommitRef) (*opened, error) {
	o, err := r.signedCommit(ctx, ref)
	if err != nil {
		return nil, err
	}
	return o, r.believed(ctx, o)
}

// signedCommit is a record whose signature is right, whether or not its key is still trusted.
func (r *Repository) signedCommit(ctx context.Context, ref CommitRef) (*opened, error) {
	name, err := layout.ParseCommit(ref.Key)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	object, err := objectstore.Get(ctx, r.store, ref.Key, commit.MaxObject)
	if errors.Is(err, objectstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", ErrNoCommit, err)
	}
	if err != nil {
		return nil, readError(err)
	}
	if commit.IsMarker(object) {
		return nil, r.ended(ctx, name, object)
	}
	o := &opened{ref: ref, digest: commit.DigestOf(object)}
	if text := hex.EncodeToString(o.digest[:]); ref.Digest == "" {
		o.ref.Digest = text
	} else if ref.Digest != text {
		return nil, fmt.Errorf("%w: digest is %s, not %s: altered, or another backup in its place",
			ErrNotAuthentic, text, ref.Digest)
	}
	head, err := commit.ReadHeader(object)
	if err != nil {
		return nil, err
	}
	if o.epoch, err = r.epoch(ctx, head.Epoch); err != nil {
		return nil, err
	}
	want := commit.Header{Repository: r.id, VM: name.VM, Sequence: name.Sequence, Origin: keys.Origin{Run: name.Run}}
	if o.record, o.header, err = commit.Open(o.epoch, object, want); err != nil {
		return nil, err
	}
	return o, o.belongs()
}

// belongs is ErrNotAuthentic for a record whose subject has its backups elsewhere: whoever can sign and seal could
// otherwise have the runs of one virtual machine taken for those of another. Nobody can make a UID for a name.
func (o *opened) belongs() error {
	vm, backup := o.record.VM, o.record.Backup
	switch {
	case o.epoch.VM(vm.UID) != o.header.VM:
		return fmt.Errorf("%w: it says that it is of virtual machine %s/%s (UID %s), whose backups are not in this chain",
			ErrNotAuthentic, vm.Namespace, vm.Name, vm.UID)
	case o.epoch.Run(o.header.VM, backup.UID) != o.header.Origin.Run:
		return fmt.Errorf("%w: it says that it is backup %s/%s (UID %s), whose run is another one", ErrNotAuthentic, backup.Namespace, backup.Name, backup.UID)
	default:
		return nil
	}
}

// Commits yields all backups in the store, by VM and sequence. A damaged record is
// yielded as an error that names it, and the list goes on after it; runs that were
// aborted are left out. An error of the store itself ends the list.
func (r *Repository) Commits(ctx context.Context) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		for info, err := range r.store.List(ctx, layout.Commits) {
			if err != nil {
				yield(nil, fmt.Errorf("list commits: %w", err))
				return
			}
			c, err := r.Commit(ctx, CommitRef{Key: info.Key})
			if errors.Is(err, ErrAborted) {
				continue
			}
			if !yield(c, err) || err != nil && !isOfOne(err) {
				return
			}
		}
	}
}

// Commit reads one record. ErrNoCommit, ErrDamaged, ErrNotAuthentic.
func (r *Repository) Commit(ctx context.Context, ref CommitRef) (*Commit, error) {
	var o *opened
	err := r.again(ctx, ref.Key, func() (err error) {
		o, err = r.readCommit(ctx, ref)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r.describe(o), nil
}

func (r *Repository) describe(o *opened) *Commit {
	c := &Commit{
		Result:        resultOf(o),
		VM:            VM(o.record.VM),
		Backup:        BackupID(o.record.Backup),
		Created:       time.Unix(o.record.Created, 0).UTC(),
		Moment:        o.record.Moment,
		Recipients:    o.record.Recipients,
		Authenticated: r.pinned,
	}
	if o.record.Parent != nil {
		ref := refOf(o.header.VM, *o.record.Parent)
		c.Parent = &ref
	}
	return c
}

func resultOf(o *opened) Result {
	out := Result{CommitRef: o.ref, Sequence: o.header.Sequence, Full: o.record.Full, StoredBytes: o.record.Stored}
	readings := o.record.Readings()
	for i := range o.record.Volumes {
		v := volumeResult(&o.record.Volumes[i])
		v.Reading = readingOf(&o.record.Volumes[i], &readings[i], o.header.Sequence, o.record.Created)
		out.Volumes = append(out.Volumes, v)
		out.LogicalBytes += v.Size
	}
	return out
}

func volumeResult(v *commit.Volume) VolumeResult {
	kind := KindBlock
	if v.Kind == commit.Tree {
		kind = KindTree
	}
	return VolumeResult{
		Name: v.Name, Role: v.Role, Mode: v.Mode, Kind: kind, Size: v.Size,
		UsedBytes: v.Used, SentBytes: v.Sent, LogicalBlockSize: v.LogicalBlock,
		Digest: hex.EncodeToString(v.Root.Content[:]),
	}
}

// Latest returns the newest backup of a VM by name, ErrNoCommit if there is none. Of
// one virtual machine that is the one with the highest sequence, whatever the clock said;
// of several that had the name in turn, the newest of the one backed up last.
// A record that cannot be read is an error unless it is known to be of another
// virtual machine: it may be the newest.
func (r *Repository) Latest(ctx context.Context, namespace, name string) (*Commit, error) {
	newest := map[keys.ID]*Commit{}
	foreign, unread := map[keys.ID]bool{}, map[keys.ID]error{}
	for info, err := range r.store.List(ctx, layout.Commits) {
		if err != nil {
			return nil, fmt.Errorf("list commits: %w", err)
		}
		at, _ := layout.ParseCommit(info.Key) // a foreign key has the zero VM, and no record
		c, err := r.Commit(ctx, CommitRef{Key: info.Key})
		switch {
		case errors.Is(err, ErrAborted), errors.Is(err, ErrDistrusted): // neither is a backup to go back to
		case err != nil && !isOfOne(err):
			return nil, err
		case err != nil:
			unread[at.VM] = err
		case c.VM.Namespace != namespace || c.VM.Name != name:
			foreign[at.VM] = true
		case newest[at.VM] == nil || c.Sequence > newest[at.VM].Sequence:
			newest[at.VM] = c
		}
	}
	for vm, err := range unread {
		if !foreign[vm] {
			return nil, err
		}
	}
	if len(newest) == 0 {
		return nil, fmt.Errorf("%w: none of %s/%s", ErrNoCommit, namespace, name)
	}
	return slices.MaxFunc(slices.Collect(maps.Values(newest)), func(a, b *Commit) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Key, b.Key))
	}), nil
}
