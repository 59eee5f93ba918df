package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/protocol"
)

// vaultDir is the disk's place: a folder on a file system of its own.
type vaultDir string

// Vault returns the vault, nil if there is none yet.
func (d vaultDir) Vault() ([]byte, error) { return readIfThere(d.path(generation.VaultFile)) }

// Sealed returns the sealed key, nil if there is none yet.
func (d vaultDir) Sealed() (*protocol.Sealed, error) {
	public, err := readIfThere(d.path(generation.SealedPublic))
	if err != nil {
		return nil, err
	}
	private, err := readIfThere(d.path(generation.SealedPrivate))
	if err != nil || public == nil && private == nil {
		return nil, err
	}
	return &protocol.Sealed{Public: public, Private: private}, nil
}

// WriteVault replaces the vault; after a crash the old or the new one is there.
func (d vaultDir) WriteVault(b []byte) error { return d.write(generation.VaultFile, b) }

// WriteSealed stores the sealed key.
func (d vaultDir) WriteSealed(s protocol.Sealed) error {
	if err := d.write(generation.SealedPublic, s.Public); err != nil {
		return err
	}
	return d.write(generation.SealedPrivate, s.Private)
}

func (d vaultDir) path(name string) string { return filepath.Join(string(d), name) }

func (d vaultDir) write(name string, b []byte) error {
	path := d.path(name)
	if err := writeSynced(path+".new", b); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	dir, err := os.Open(string(d))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func readIfThere(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
