package csireflink

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kinds of things that a store keeps, each a folder.
const (
	volumes   = "volumes"
	snapshots = "snapshots"
	groups    = "groups"
)

// record is what is known of a volume, snapshot or group besides its image.
type record struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Source  string    `json:"source,omitempty"` // what it was copied from
	Group   string    `json:"group,omitempty"`
	Size    int64     `json:"size"`
	Created time.Time `json:"created"`
	Members []string  `json:"members,omitempty"`
}

// store keeps records and images below one folder of a file system with reflink.
type store string

func (s store) folder(kind, id string) string { return filepath.Join(string(s), kind, id) }
func (s store) image(kind, id string) string  { return filepath.Join(s.folder(kind, id), "disk.img") }

func (s store) prepare() error {
	for _, kind := range []string{volumes, snapshots, groups} {
		if err := os.MkdirAll(filepath.Join(string(s), kind), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// load reads a record; fs.ErrNotExist if there is none. An ID that cannot be one is not there either.
func (s store) load(kind, id string) (*record, error) {
	if id == "" || id == "." || id == ".." || strings.ContainsAny(id, "/\x00") {
		return nil, fs.ErrNotExist
	}
	raw, err := os.ReadFile(filepath.Join(s.folder(kind, id), "record.json"))
	if errors.Is(err, unix.ENAMETOOLONG) {
		return nil, fs.ErrNotExist
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read record of %q: %w", id, err)
	}
	return r, nil
}

// save makes a record visible. Images are put in place before it.
func (s store) save(kind string, r *record) error {
	if err := os.MkdirAll(s.folder(kind, r.ID), 0o755); err != nil {
		return err
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	name := filepath.Join(s.folder(kind, r.ID), "record.json")
	if err := os.WriteFile(name+".new", raw, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

func (s store) list(kind string) ([]*record, error) {
	entries, err := os.ReadDir(filepath.Join(string(s), kind))
	if err != nil {
		return nil, err
	}
	var all []*record
	for _, e := range entries {
		r, err := s.load(kind, e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue // being made or removed
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// remove drops the record first: what has no record is not there.
func (s store) remove(kind, id string) error {
	if _, err := s.load(kind, id); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Remove(filepath.Join(s.folder(kind, id), "record.json")); err != nil {
		return err
	}
	return os.RemoveAll(s.folder(kind, id))
}

// drop removes what may be there with or without a record.
func (s store) drop(kind, id string) error { return os.RemoveAll(s.folder(kind, id)) }

// clone makes the file target share all extents of source, which must be flushed for its cache to be in the copy.
func clone(target, source string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(target, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := unix.IoctlFileClone(int(to.Fd()), int(from.Fd())); err != nil {
		return fmt.Errorf("clone %q: %w", source, err)
	}
	return nil
}
