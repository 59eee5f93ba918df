package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/blockfile"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// stepCommand makes this program one step of the engine instead of the measurement:
// init, backup or restore, with what they share in files of the work directory.
const stepCommand = "step"

// state is what one step leaves for the next.
type state struct {
	Keys      map[string][]byte
	Identity  string
	Recipient string
	Last      *repository.CommitRef
}

func step(args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("step takes what, state file, store and image; not %q", args)
	}
	ctx := context.Background()
	what, file, store, image := args[0], args[1], args[2], args[3]
	s := &state{}
	if what != "init" {
		body, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(body, s); err != nil {
			return err
		}
	}
	var err error
	switch what {
	case "init":
		err = s.init(ctx, store)
	case "backup":
		err = s.backup(ctx, store, image)
	case "restore":
		err = s.restore(ctx, store, image)
	default:
		err = fmt.Errorf("no step %q", what)
	}
	if err != nil {
		return err
	}
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(file, body, 0o600)
}

func (s *state) init(ctx context.Context, store string) error {
	if err := os.MkdirAll(store, 0o700); err != nil {
		return err
	}
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
	return repository.Init(ctx, dirstore.New(store), k, recipients)
}

func (s *state) backup(ctx context.Context, store, image string) error {
	k, err := keys.FromSecret(s.Keys)
	if err != nil {
		return err
	}
	recipients, err := keys.ParseRecipients([]string{s.Recipient})
	if err != nil {
		return err
	}
	r, err := repository.OpenWithKeys(ctx, dirstore.New(store), k)
	if err != nil {
		return err
	}
	disk, err := blockfile.Open(image)
	if err != nil {
		return err
	}
	defer disk.Close()
	b, err := r.Begin(ctx, repository.BackupSpec{
		VM:      repository.VM{Namespace: "bench", Name: "vm", UID: "vm"},
		Backup:  repository.BackupID{Namespace: "bench", Name: "backup", UID: time.Now().Format(time.RFC3339Nano)},
		Created: time.Now(), Parent: s.Last, Recipients: recipients,
	})
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
	s.Last = &out.CommitRef
	return err
}

func (s *state) restore(ctx context.Context, store, image string) error {
	ids, err := keys.ParseIdentities([]byte(s.Identity))
	if err != nil {
		return err
	}
	r, err := repository.OpenWithIdentities(ctx, dirstore.New(store), ids, nil)
	if err != nil {
		return err
	}
	c, err := r.Commit(ctx, *s.Last)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(image), 0o700); err != nil {
		return err
	}
	t, err := blockfile.Create(image, c.Volumes[0].Size)
	if err != nil {
		return err
	}
	if _, err := r.RestoreBlock(ctx, c, repository.RestoreSpec{Volume: "disk", Target: t, Fresh: true}); err != nil {
		return err
	}
	return t.Close()
}
