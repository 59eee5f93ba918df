package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/blockfile"
)

// existing is a file or device that a disk is brought onto.
type existing struct {
	*blockfile.Target
	path string
	// claim keeps a device from being mounted meanwhile, and is refused if it is.
	claim *os.File
}

// rest says what of a larger device was left; "" if there is nothing.
func (e *existing) rest() string {
	if e.Rest() == 0 {
		return ""
	}
	return fmt.Sprintf("; the device is larger than the disk, and its last %d bytes keep what they held", e.Rest())
}

func (e *existing) Close() error { return errors.Join(e.Target.Close(), e.claim.Close()) }

// openExisting opens path for a disk of size bytes.
func openExisting(path string, size int64) (*existing, error) {
	claim, err := os.OpenFile(path, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: it must be there, be writable and not be in use", err)
	}
	target, err := blockfile.OpenTarget(path, size)
	if err != nil {
		return nil, errors.Join(err, claim.Close())
	}
	return &existing{target, path, claim}, nil
}

// parseOnto reads VOLUME=PATH of each flag.
func parseOnto(flags []string) (map[string]string, error) {
	onto := map[string]string{}
	for _, f := range flags {
		volume, path, ok := strings.Cut(f, "=")
		if !ok || volume == "" || path == "" {
			return nil, usagef("--onto is VOLUME=PATH, not %q", f)
		}
		if _, twice := onto[volume]; twice {
			return nil, usagef("--onto names volume %q twice", volume)
		}
		onto[volume] = path
	}
	return onto, nil
}

// checkOnto makes sure that the backup has the disks that are named.
func checkOnto(c *repository.Commit, onto map[string]string) error {
	left := len(onto)
	var disks []string
	for _, v := range c.Volumes {
		if v.Kind != repository.KindBlock {
			continue
		}
		disks = append(disks, v.Name)
		if _, ok := onto[v.Name]; ok {
			left--
		}
	}
	if left > 0 {
		return usagef("--onto names a volume that is no disk of the backup; its disks are %q", disks)
	}
	return nil
}

// openOnto opens what disks go onto, all before anything is written to any of them.
func openOnto(c *repository.Commit, onto map[string]string) (map[string]*existing, error) {
	if err := distinct(onto); err != nil {
		return nil, err
	}
	open := map[string]*existing{}
	for _, v := range c.Volumes {
		path, ok := onto[v.Name]
		if !ok {
			continue
		}
		e, err := openExisting(path, v.Size)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("volume %q: %w", v.Name, err), closeOnto(open))
		}
		open[v.Name] = e
	}
	return open, nil
}

// distinct refuses two disks onto one file or device, by whatever names: the second would overwrite the
// first after that was proven.
func distinct(onto map[string]string) error {
	type place struct {
		volume string
		info   os.FileInfo
	}
	var taken []place
	for _, volume := range slices.Sorted(maps.Keys(onto)) {
		info, err := os.Stat(onto[volume])
		if err != nil {
			return fmt.Errorf("volume %q: %w: it must be there", volume, err)
		}
		for _, p := range taken {
			if os.SameFile(p.info, info) {
				return usagef("--onto brings volumes %q and %q onto the same file or device", p.volume, volume)
			}
		}
		taken = append(taken, place{volume, info})
	}
	return nil
}

func closeOnto(open map[string]*existing) (err error) {
	for _, e := range open {
		err = errors.Join(err, e.Close())
	}
	return err
}
