package story

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Env is a cluster that stories can be played in.
type Env struct {
	Runner
	// Bucket for backups; its prefix is new for every Env.
	Bucket Bucket
	// Work is a folder for files; whoever starts the Env removes it.
	Work string

	// foreign says that the cluster is the user's own, and not one of test/cluster.
	foreign bool
}

// KeyPair is an age identity and its recipient.
type KeyPair struct{ Identity, Recipient, File string }

// Keygen makes a key pair with the product's own command.
func (e *Env) Keygen(ctx context.Context) (*KeyPair, error) {
	file := filepath.Join(e.Work, "restore.key")
	if err := os.RemoveAll(file); err != nil {
		return nil, err
	}
	if _, err := e.Run(ctx, nil, e.CLI, "keygen", "--output", file); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	keys := &KeyPair{Identity: string(content), File: file}
	for line := range strings.Lines(keys.Identity) {
		if _, recipient, ok := strings.Cut(strings.TrimSpace(line), "public key: "); ok {
			keys.Recipient = recipient
		}
	}
	if keys.Recipient == "" {
		return nil, fmt.Errorf("%s names no public key", file)
	}
	return keys, nil
}

// RestoreFiles brings the newest backup of a virtual machine (namespace/name) out of the bucket
// into a folder: disk images and a state folder. It needs no cluster.
func (e *Env) RestoreFiles(ctx context.Context, keys *KeyPair, vm, commit, dir string) error {
	args := append([]string{"restore-files", "--vm", vm, "--commit", commit, "--output", dir}, e.bucketFlags(keys)...)
	_, err := e.runWith(ctx, []string{"AWS_ACCESS_KEY_ID=" + e.Bucket.AccessKey, "AWS_SECRET_ACCESS_KEY=" + e.Bucket.SecretKey}, e.CLI, args...)
	return err
}

func (e *Env) bucketFlags(keys *KeyPair) []string {
	flags := []string{"--bucket", e.Bucket.Name, "--endpoint", e.Bucket.Endpoint, "--prefix", e.Bucket.Prefix, "--region", e.Bucket.Region, "--identity", keys.File}
	if e.Bucket.CAFile != "" {
		flags = append(flags, "--ca-file", e.Bucket.CAFile)
	}
	return flags
}

// Mark is one place where the guest keeps its generation.
type Mark struct {
	Identity   string `json:"identity"`
	Generation int    `json:"generation"`
}

// Inspection is what test/guest's inspect says of a set of disk, TPM and EFI variables.
type Inspection struct {
	Disk   *Mark  `json:"disk"`
	TPM    *Mark  `json:"tpm"`
	EFI    *Mark  `json:"efi"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	// Moment says that all three are of one moment.
	Moment bool `json:"moment"`
}

// Inspect reads the three generations from files, without booting.
func (e *Env) Inspect(ctx context.Context, disk, state string) (*Inspection, error) {
	out, err := e.Run(ctx, nil, e.GuestTool, "inspect", "-disk", disk, "-state", state, "-json")
	if err != nil && len(out) == 0 {
		return nil, err
	}
	seen := &Inspection{}
	return seen, json.Unmarshal(out, seen)
}

// RecordedGeneration is the generation in the newest backup of a virtual machine, read from the
// bucket with the identity alone.
func (e *Env) RecordedGeneration(ctx context.Context, keys *KeyPair, vm, dir string) (int, error) {
	if err := e.RestoreFiles(ctx, keys, vm, "latest", dir); err != nil {
		return 0, err
	}
	seen, err := e.InspectFolder(ctx, dir)
	if err != nil {
		return 0, err
	}
	if !seen.Moment || seen.Disk == nil {
		return 0, fmt.Errorf("the backup is not of one moment: %s", seen.Reason)
	}
	return seen.Disk.Generation, nil
}

// InspectFolder inspects what RestoreFiles has brought back: one disk image, and the folder with the state.
func (e *Env) InspectFolder(ctx context.Context, dir string) (*Inspection, error) {
	disks, err := filepath.Glob(filepath.Join(dir, "*.img"))
	if err != nil || len(disks) != 1 {
		return nil, fmt.Errorf("expected one disk image in %s, found %v (%w)", dir, disks, err)
	}
	return e.Inspect(ctx, disks[0], filepath.Join(dir, "state"))
}
