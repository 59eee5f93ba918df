package dirstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// publishNamed writes body to a hidden file and gives it the name path by a hard
// link, which fails with fs.ErrExist if that name is taken; where links are not
// possible, by rename, which must do so too.
func publishNamed(path string, body []byte, rename func(from, to string) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = errors.Join(fill(f, body), f.Close())
	if err != nil {
		return err
	}
	err = os.Link(f.Name(), path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return rename(f.Name(), path)
	}
	return err
}

// publishOver writes body to a hidden file and renames it to path, whatever is there.
func publishOver(path string, body []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	if err := errors.Join(fill(f, body), f.Chmod(0o644), f.Close(), os.Rename(f.Name(), path)); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func fill(f *os.File, body []byte) error {
	if _, err := f.Write(body); err != nil {
		return err
	}
	return f.Sync()
}
