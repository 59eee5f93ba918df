package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/blockfile"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// stepCommand makes this program one step of the engine instead of the measurement.
const stepCommand = "step"

// task is one step.
type task struct {
	What    string // init, backup, restore, verify or upload
	State   string // file with what one step leaves for the next
	Place   place
	Image   string
	Number  int    // of the backup to stand on, or to restore; -1 is the newest
	Profile string // file for a CPU profile; empty for none
}

// told is what a step prints.
type told struct {
	Requests, Fetched, Written int64
}

// state is what one step leaves for the next.
type state struct {
	Keys      map[string][]byte
	Identity  string
	Recipient string
	Backups   []repository.CommitRef
}

func (s *state) backupNumber(n int) (repository.CommitRef, bool) {
	if n < 0 {
		n += len(s.Backups)
	}
	if n < 0 || n >= len(s.Backups) {
		return repository.CommitRef{}, false
	}
	return s.Backups[n], true
}

func step(args []string) (err error) {
	t := task{}
	if len(args) != 1 {
		return fmt.Errorf("%w: step takes a task", errUsage)
	}
	if err := json.Unmarshal([]byte(args[0]), &t); err != nil {
		return err
	}
	if t.Profile != "" {
		f, err := os.Create(t.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return t.run(context.Background())
}

func (t *task) run(ctx context.Context) error {
	s := &state{}
	body, err := os.ReadFile(t.State)
	if err == nil {
		err = json.Unmarshal(body, s)
	}
	if err != nil && (t.What != "init" || !errors.Is(err, fs.ErrNotExist)) {
		return err
	}
	switch t.What {
	case "init":
		*s = state{}
		err = t.init(ctx, s)
	case "backup":
		err = t.backup(ctx, s)
	case "restore":
		err = t.restore(ctx, s)
	case "verify":
		err = t.verify(ctx, s)
	case "upload":
		err = t.upload(ctx)
	default:
		err = fmt.Errorf("%w: no step %q", errUsage, t.What)
	}
	if err != nil {
		return err
	}
	if body, err = json.Marshal(s); err != nil {
		return err
	}
	return os.WriteFile(t.State, body, 0o600)
}

func (t *task) init(ctx context.Context, s *state) error {
	k, err := keys.Generate()
	if err != nil {
		return err
	}
	identity, err := keys.GenerateIdentity()
	if err != nil {
		return err
	}
	s.Keys, s.Identity, s.Recipient = k.Secret(), identity.Secret, identity.Recipient
	recipients, err := keys.ParseRecipients([]string{s.Recipient})
	if err != nil {
		return err
	}
	store, err := t.Place.store()
	if err != nil {
		return err
	}
	return repository.Init(ctx, store, k, recipients)
}

func (t *task) backup(ctx context.Context, s *state) error {
	k, err := keys.FromSecret(s.Keys)
	if err != nil {
		return err
	}
	recipients, err := keys.ParseRecipients([]string{s.Recipient})
	if err != nil {
		return err
	}
	store, err := t.Place.store()
	if err != nil {
		return err
	}
	r, err := repository.OpenWithKeys(ctx, store, k)
	if err != nil {
		return err
	}
	disk, err := blockfile.Open(t.Image)
	if err != nil {
		return err
	}
	defer disk.Close()
	spec := repository.BackupSpec{
		VM:      repository.VM{Namespace: "bench", Name: "vm", UID: "vm"},
		Backup:  repository.BackupID{Namespace: "bench", Name: "backup", UID: time.Now().Format(time.RFC3339Nano)},
		Created: time.Now(), Recipients: recipients,
	}
	if parent, ok := s.backupNumber(t.Number); ok {
		spec.Parent = &parent
	}
	b, err := r.Begin(ctx, spec)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = b.AddBlock(ctx, repository.BlockVolume{
		Name: "disk", Role: "Disk", Mode: "Block", Size: disk.Size(), Source: disk, Extents: disk.Extents(),
	})
	if err != nil {
		return err
	}
	out, err := b.Commit(ctx, nil)
	s.Backups = append(s.Backups, out.CommitRef)
	return err
}

// restore brings a backup into a new file, or in place onto one that is there.
func (t *task) restore(ctx context.Context, s *state) error {
	ids, err := keys.ParseIdentities([]byte(s.Identity))
	if err != nil {
		return err
	}
	store, err := t.Place.store()
	if err != nil {
		return err
	}
	r, err := repository.OpenWithIdentities(ctx, store, ids, nil)
	if err != nil {
		return err
	}
	ref, ok := s.backupNumber(t.Number)
	if !ok {
		return fmt.Errorf("%w: there is no backup %d", errUsage, t.Number)
	}
	c, err := r.Commit(ctx, ref)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.Image), 0o700); err != nil {
		return err
	}
	spec := repository.RestoreSpec{Volume: "disk"}
	target, err := blockfile.Create(t.Image, c.Volumes[0].Size)
	spec.Fresh = err == nil
	if errors.Is(err, fs.ErrExist) {
		target, err = blockfile.OpenTarget(t.Image, c.Volumes[0].Size)
		spec.InPlace = true
	}
	if err != nil {
		return err
	}
	spec.Target = target
	out, err := r.RestoreBlock(ctx, c, spec)
	if err = errors.Join(err, target.Close()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(told{out.Requests, out.FetchedByte, out.DataBytes})
}

// verify is what the cluster can do by itself: every bit of what is stored, with no
// identity.
func (t *task) verify(ctx context.Context, s *state) error {
	k, err := keys.FromSecret(s.Keys)
	if err != nil {
		return err
	}
	store, err := t.Place.store()
	if err != nil {
		return err
	}
	r, err := repository.OpenWithKeys(ctx, store, k)
	if err != nil {
		return err
	}
	out, err := r.Verify(ctx, repository.VerifySpec{})
	if err != nil {
		return err
	}
	if !out.RoundDone || len(out.Damaged) > 0 {
		return fmt.Errorf("the round is over: %t, damaged: %v", out.RoundDone, out.Damaged)
	}
	return json.NewEncoder(os.Stdout).Encode(told{Fetched: out.Bytes})
}

const (
	uploadPacks = 32
	uploadBytes = uploadPacks * uploadSize
	uploadSize  = 32 << 20
)

// upload sends the same pack again and again: what is measured is the way to the
// server.
func (t *task) upload(ctx context.Context) error {
	store, err := t.Place.store()
	if err != nil {
		return err
	}
	pack := make([]byte, uploadSize)
	for i := range pack {
		pack[i] = byte(i * i >> 9)
	}
	for i := range uploadPacks {
		if _, err := store.Create(ctx, fmt.Sprintf("upload/%d", i), pack); err != nil {
			return err
		}
	}
	return nil
}
