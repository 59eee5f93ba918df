package mover

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

// capturedState reads the state that the witness put into Secrets, each mounted as a
// folder of its own below the path. ErrStateDiffers unless it has the digest.
func capturedState(dir, digest string) (firmware.Tree, [][]byte, error) {
	folders, err := os.ReadDir(dir)
	if err != nil {
		return firmware.Tree{}, nil, fmt.Errorf("captured state: %w: %w", ErrMount, err)
	}
	var chunks [][]byte
	for _, folder := range folders {
		files, err := readDir(filepath.Join(dir, folder.Name()))
		if err != nil {
			return firmware.Tree{}, nil, fmt.Errorf("captured state: %w", err)
		}
		for _, chunk := range files {
			chunks = append(chunks, chunk)
		}
	}
	t, err := unpack(chunks, digest)
	return t, chunks, err
}

func unpack(chunks [][]byte, digest string) (firmware.Tree, error) {
	t, err := firmware.Unpack(chunks, 0)
	if err != nil {
		return t, fmt.Errorf("captured state: %w", err)
	}
	return t, checkDigest(t, digest)
}

// checkDigest compares t with the digest of the moment; an empty one accepts any.
func checkDigest(t firmware.Tree, digest string) error {
	if got := t.Digest(); digest != "" && got != digest {
		return fmt.Errorf("%w: its digest is %s, the moment's is %s", ErrStateDiffers, got, digest)
	}
	return nil
}

// stateVolume is firmware state as a volume of a commit.
func stateVolume(name string, t firmware.Tree) repository.TreeVolume {
	contents := map[string][]byte{}
	v := repository.TreeVolume{Name: name, Role: RoleFirmwareState, Mode: "Filesystem"}
	for _, e := range t.Entries {
		entry := tree.Entry{
			Path: e.Path, Type: tree.TypeFile, Mode: e.Mode, UID: e.UID, GID: e.GID,
			ModTime: time.Unix(0, e.ModTime).UTC(), Size: int64(len(e.Content)),
		}
		if e.Type == firmware.TypeDirectory {
			entry.Type = tree.TypeDir
		}
		for name, value := range e.Xattrs {
			entry.Xattrs = append(entry.Xattrs, tree.Xattr{Name: name, Value: value})
		}
		slices.SortFunc(entry.Xattrs, func(a, b tree.Xattr) int { return cmp.Compare(a.Name, b.Name) })
		contents[e.Path] = e.Content
		v.Entries = append(v.Entries, entry)
	}
	v.Open = openFrom(contents)
	return v
}

func openFrom(contents map[string][]byte) func(string) (io.ReadCloser, error) {
	return func(path string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(contents[path])), nil
	}
}

// stateOf is the inverse of stateVolume. A link has no place in firmware state.
func stateOf(ctx context.Context, from repository.OpenTree) (firmware.Tree, error) {
	var t firmware.Tree
	for _, e := range from.Entries() {
		entry := firmware.Entry{Path: e.Path, Type: firmware.TypeDirectory, Mode: e.Mode, UID: e.UID, GID: e.GID, ModTime: e.ModTime.UnixNano()}
		switch e.Type {
		case tree.TypeDir:
		case tree.TypeFile:
			content, err := from.Contents(ctx, e.Path)
			if err != nil {
				return t, fmt.Errorf("read %q: %w", e.Path, err)
			}
			entry.Type, entry.Content = firmware.TypeFile, content
		default:
			return t, fmt.Errorf("%w: %q is neither a file nor a directory", firmware.ErrBadTree, e.Path)
		}
		for _, x := range e.Xattrs {
			if entry.Xattrs == nil {
				entry.Xattrs = map[string][]byte{}
			}
			entry.Xattrs[x.Name] = x.Value
		}
		t.Entries = append(t.Entries, entry)
	}
	slices.SortFunc(t.Entries, func(a, b firmware.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return t, t.Validate()
}

// documentsVolume is the mounted documents as a volume of a commit. Nothing of the
// mount but names and bytes is recorded, so that a rerun records the same.
func documentsVolume(name, dir string) (repository.TreeVolume, error) {
	files, err := readDir(dir)
	if err != nil {
		return repository.TreeVolume{}, fmt.Errorf("documents: %w", err)
	}
	v := repository.TreeVolume{Name: name, Role: RoleSpec, Mode: "Filesystem", Open: openFrom(files)}
	for path, body := range files {
		v.Entries = append(v.Entries, tree.Entry{
			Path: path, Type: tree.TypeFile, Mode: 0o444, ModTime: time.Unix(0, 0).UTC(), Size: int64(len(body)),
		})
	}
	slices.SortFunc(v.Entries, func(a, b tree.Entry) int { return cmp.Compare(a.Path, b.Path) })
	return v, nil
}

// writeFile puts body at path in one step and durably.
func writeFile(path string, body []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(body)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
