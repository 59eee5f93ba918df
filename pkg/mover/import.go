package mover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// ImportedVolume is one volume that was written and read back.
type ImportedVolume struct {
	Name string
	// ContentRoot that its bytes were compared with; for firmware state the digest
	// of the state as it was written.
	ContentRoot string
}

// Import fills the fresh volumes of c and reads them back. Either all of them are
// good when it returns, or it returns an error and none may be used. A rerun starts
// with what the earlier one left.
//
// Before anything of the backup but its record is read, it is pinned, so that no garbage collection
// removes it meanwhile. The pin ends with the task; what only stops leaves it to the next attempt,
// and what never ends it, because it was killed for good, to the manager, who knows when its pods are gone.
func Import(ctx context.Context, e Env, c config.Import, rootKey []byte) ([]ImportedVolume, error) {
	i := &importing{env: e, config: c}
	done, err := i.all(ctx, rootKey)
	if i.repo != nil {
		i.covered()
	}
	if i.pin != nil && (err == nil || Final(err)) {
		if err := i.pin.Done(ctx); err != nil {
			e.note("the pin on the backup stays until maintenance finds its reader gone: %v", err)
		}
	}
	return done, err
}

func (i *importing) all(ctx context.Context, rootKey []byte) ([]ImportedVolume, error) {
	c := i.config
	if c.Commit != nil {
		if err := i.open(ctx, rootKey); err != nil {
			return nil, err
		}
	} else if len(c.Disks) > 0 {
		return nil, fmt.Errorf("%w: without a commit only kept firmware state can be imported", ErrTask)
	}
	// Neither commit nor state: all claims are made of snapshots, and that they are mounted is all there is to do.
	var done []ImportedVolume
	if c.State != nil { // first: it is small, and what is wrong with it shows at once
		v, err := i.state(ctx, *c.State)
		if err != nil {
			return nil, fmt.Errorf("firmware state %q: %w", c.State.VolumeName, err)
		}
		done = append(done, v)
	}
	for _, d := range c.Disks {
		v, err := i.disk(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", d.Name, err)
		}
		done = append(done, v)
	}
	return done, nil
}

// importing is one attempt.
type importing struct {
	env    Env
	config config.Import
	repo   *reading
	commit *repository.Commit
	pin    *repository.ReadPin // nil where nothing can be pinned
	before Progress            // of the disks that are done
}

// open finds the commit and makes sure that task and commit speak of the same volumes.
func (i *importing) open(ctx context.Context, rootKey []byte) (err error) {
	if i.repo, err = i.env.open(ctx, rootKey, i.config.Unlock); err != nil {
		return fmt.Errorf("open repository: %w", err)
	}
	i.commit, err = i.repo.commit(ctx, *i.config.Commit)
	if err != nil {
		return err
	}
	if err := i.hold(ctx); err != nil {
		return fmt.Errorf("pin backup: %w", err)
	}
	var asked, there []string
	for _, d := range i.config.Disks {
		asked = append(asked, d.Name)
	}
	for _, v := range i.commit.Volumes {
		if v.Role == RoleDisk {
			there = append(there, v.Name)
			i.before.Total += v.Size
		}
	}
	slices.Sort(asked)
	slices.Sort(there)
	if !slices.Equal(asked, there) {
		return fmt.Errorf("%w: the backup has the disks %q, the task fills %q", ErrIncomplete, there, asked)
	}
	return i.repo.openData(ctx, i.commit)
}

// covered says that somebody put something over what the restore has read, in a bucket that keeps versions.
func (i *importing) covered() {
	if keys := i.repo.Covered(); len(keys) > 0 {
		i.env.note("objects of the store (%d) have been overwritten or hidden since they were made, %q for one: their first versions were read; somebody has had the right to write there who should not",
			len(keys), slices.Min(keys))
	}
}

// hold pins the backup, with the repository's keys. A restore must not fail for want of them, or of the
// right to write: then only the interval of garbage collection protects it, and what is gone is said to be.
// One of a backup that is being removed does not begin.
func (i *importing) hold(ctx context.Context) error {
	if i.config.Reader == "" {
		return nil
	}
	k, err := i.env.repositoryKeys()
	if err == nil {
		err = i.repo.UseKeys(k)
	}
	if err == nil {
		i.pin, err = i.repo.Pin(ctx, i.commit, i.config.Reader, 0)
	}
	if err == nil {
		return nil
	}
	i.pin = nil
	for _, unable := range []error{ErrMount, keys.ErrSecret, repository.ErrForeign, objectstore.ErrDenied} {
		if errors.Is(err, unable) {
			i.env.note("the backup is read without a pin: %v", err)
			return nil
		}
	}
	return err
}

func (i *importing) disk(ctx context.Context, d config.Disk) (ImportedVolume, error) {
	v, err := i.volume(d.Name, RoleDisk)
	if err != nil {
		return ImportedVolume{}, err
	}
	target, err := openTarget(i.env.Paths, d, v)
	if err != nil {
		return ImportedVolume{}, err
	}
	defer target.Close()
	spec := repository.RestoreSpec{Volume: d.Name, Target: target, Fresh: target.fresh, InPlace: !target.fresh, Progress: i.progress}
	if _, err := i.repo.RestoreBlock(ctx, i.commit, spec); err != nil {
		return ImportedVolume{}, err
	}
	i.before.Done += v.Size
	return ImportedVolume{Name: d.Name, ContentRoot: v.Digest}, nil
}

// progress counts a byte half when it is written and half when it was read back.
func (i *importing) progress(p repository.RestoreProgress) {
	now := i.before
	now.Done += (p.Done + p.Verified) / 2
	now.Read += p.Fetched
	now.Sent += p.Done - p.Zero
	i.env.progress(now)
	if p.Verified == p.Total {
		i.before.Read, i.before.Sent = now.Read, now.Sent
	}
}

func (i *importing) volume(name, role string) (repository.VolumeResult, error) {
	for _, v := range i.commit.Volumes {
		if v.Name == name && v.Role == role {
			return v, nil
		}
	}
	return repository.VolumeResult{}, fmt.Errorf("%w: the backup has no volume of this name and role %s", ErrIncomplete, role)
}

// state writes the firmware state as the new virtual machine must have it.
func (i *importing) state(ctx context.Context, c config.ImportState) (ImportedVolume, error) {
	captured, err := i.captured(ctx, c)
	if err != nil {
		return ImportedVolume{}, err
	}
	policy := firmware.TPMPolicy(c.TPMPolicy)
	if policy != firmware.TPMKeep && policy != firmware.TPMBlank {
		return ImportedVolume{}, fmt.Errorf("%w: TPM policy %q", ErrTask, c.TPMPolicy)
	}
	state, _, err := firmware.Transform(captured, expectation(c.From), expectation(c.To), policy)
	if err != nil {
		return ImportedVolume{}, err
	}
	state = firmware.WrittenBy(state, uint32(os.Getuid()))
	dir := filepath.Join(i.env.Paths.Volumes, c.VolumeName)
	if err := firmware.Write(dir, state, firmware.WriteOptions{Existing: firmware.ExistingRemove}); err != nil {
		return ImportedVolume{}, err
	}
	if err := firmware.Verify(ctx, dir, state, firmware.OwnersKeep); err != nil {
		return ImportedVolume{}, err
	}
	return ImportedVolume{Name: c.VolumeName, ContentRoot: state.Digest()}, nil
}

// captured is the state as it was backed up.
func (i *importing) captured(ctx context.Context, c config.ImportState) (firmware.Tree, error) {
	if c.KeptVolume != "" {
		return keptState(filepath.Join(i.env.Paths.Volumes, c.KeptVolume), c.Digest)
	}
	if i.commit == nil {
		return firmware.Tree{}, fmt.Errorf("%w: firmware state comes from a commit or a kept volume", ErrTask)
	}
	if _, err := i.volume(c.VolumeName, RoleFirmwareState); err != nil {
		return firmware.Tree{}, err
	}
	opened, err := i.repo.ReadTree(ctx, i.commit, c.VolumeName)
	if err != nil {
		return firmware.Tree{}, err
	}
	t, err := stateOf(ctx, opened)
	if err != nil {
		return firmware.Tree{}, err
	}
	return t, checkDigest(t, c.Digest)
}

func expectation(m config.Machine) firmware.Expectation {
	kept := func(persistent bool) firmware.Persistence {
		if persistent {
			return firmware.Persistent
		}
		return firmware.Volatile
	}
	return firmware.Expectation{
		VMName: m.VMName, FirmwareUUID: m.FirmwareUUID,
		TPM: kept(m.PersistentTPM), EFI: kept(m.PersistentEFI),
	}
}
