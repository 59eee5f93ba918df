package mover

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

func TestSourceExtents(t *testing.T) {
	p := newPod(t, nil)
	body := p.disk(t, "root", 1)
	d, err := openSource(p.Paths, config.Disk{Name: "root", Mode: config.Filesystem})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	v := d.volume()
	got, covered := make([]byte, v.Size), int64(0)
	for e, err := range v.Extents {
		if err != nil {
			t.Fatal(err)
		}
		covered += e.Length
		if _, err := v.Source.ReadAt(got[e.Offset:e.Offset+e.Length], e.Offset); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, body) {
		t.Error("what is outside of the extents is not zero")
	}
	if covered >= v.Size {
		t.Errorf("extents cover %d of %d bytes: holes are read", covered, v.Size)
	}
}

func TestSourceRefuses(t *testing.T) {
	p := newPod(t, nil)
	p.disk(t, "root", 1)
	write(t, filepath.Join(p.Paths.Volumes, "empty", imageName), nil)
	folder(t, filepath.Join(p.Paths.Volumes, "folder", imageName))
	folder(t, filepath.Join(p.Paths.Volumes, "none"))
	write(t, filepath.Join(p.Paths.Devices, "file"), []byte("not a device"))
	for name, tc := range map[string]struct {
		disk config.Disk
		want error
	}{
		"NoImage":       {config.Disk{Name: "none", Mode: config.Filesystem}, ErrVolume},
		"NotMounted":    {config.Disk{Name: "absent", Mode: config.Block}, ErrVolume},
		"EmptyImage":    {config.Disk{Name: "empty", Mode: config.Filesystem}, ErrVolume},
		"FolderAsImage": {config.Disk{Name: "folder", Mode: config.Filesystem}, ErrVolume},
		"FileAsDevice":  {config.Disk{Name: "file", Mode: config.Block}, ErrVolume},
		"NoMode":        {config.Disk{Name: "root"}, ErrTask},
		"Escape":        {config.Disk{Name: "../root", Mode: config.Filesystem}, ErrTask},
		"Parent":        {config.Disk{Name: "..", Mode: config.Filesystem}, ErrTask},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := openSource(p.Paths, tc.disk); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

func TestTargetImage(t *testing.T) {
	p := newPod(t, nil)
	disk := config.Disk{Name: "root", Mode: config.Filesystem}
	path := filepath.Join(folder(t, filepath.Join(p.Paths.Volumes, "root")), imageName)
	write(t, path, bytes.Repeat([]byte("left by an earlier try"), 1_000_000))
	target, err := openTarget(p.Paths, disk, repository.VolumeResult{Size: diskBytes, UsedBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	data := bytes.Repeat([]byte{7}, 1<<20)
	if _, err := target.WriteAt(data, 2<<20); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(target.Zero(2<<20+4096, 100_000), target.Sync()); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, diskBytes)
	copy(want[2<<20:], data)
	clear(want[2<<20+4096 : 2<<20+4096+100_000])
	got, err := io.ReadAll(io.NewSectionReader(target, 0, diskBytes))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the image does not hold what was written to it: %v", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; !target.fresh || used > 1<<20+65536 || info.Mode().Perm() != 0o660 || info.Size() != diskBytes {
		t.Errorf("fresh %t, %d bytes used, mode %o, size %d", target.fresh, used, info.Mode().Perm(), info.Size())
	}
}

func TestTargetRefuses(t *testing.T) {
	p := newPod(t, nil)
	folder(t, filepath.Join(p.Paths.Volumes, "root"))
	for name, tc := range map[string]struct {
		disk config.Disk
		used int64
	}{
		"NotMounted": {config.Disk{Name: "absent", Mode: config.Filesystem}, 1},
		"TooSmall":   {config.Disk{Name: "root", Mode: config.Filesystem}, 1 << 60},
		"NoDevice":   {config.Disk{Name: "absent", Mode: config.Block}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := openTarget(p.Paths, tc.disk, repository.VolumeResult{Size: tc.used, UsedBytes: tc.used}); !errors.Is(err, ErrVolume) {
				t.Errorf("got %v, want ErrVolume", err)
			}
		})
	}
}
