package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	loopMajor = 7
	fiThaw    = 0xc0045878 // FITHAW
)

// loop is an attached loop device, known by what is below it. File names do not help: they are lost with the mount
// namespace that they were opened in.
type loop struct {
	path string
	dev  uint64 // its own device number
	info *unix.LoopInfo64
}

// loops lists the attached loop devices that stand on the node's store, directly or by way of each other, in the
// order in which they stand on each other.
func (d Dir) loops() []loop {
	var store unix.Stat_t
	if unix.Stat(d.storeImage(), &store) != nil {
		return nil
	}
	var ours []loop
	all := attachedLoops()
	for _, l := range all {
		if l.info.Device == store.Dev && l.info.Inode == store.Ino {
			ours = append(ours, l)
		}
	}
	for i := 0; i < len(ours); i++ {
		for _, l := range all {
			if l.info.Device == ours[i].dev || l.info.Rdevice == ours[i].dev {
				ours = append(ours, l)
			}
		}
	}
	return ours
}

func attachedLoops() []loop {
	names, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil
	}
	var found []loop
	for _, name := range names {
		path := filepath.Join("/dev", strings.Split(name, "/")[3])
		if l, err := openLoop(path); err == nil {
			found = append(found, l)
		}
	}
	return found
}

func openLoop(path string) (loop, error) {
	f, err := os.Open(path)
	if err != nil {
		return loop{}, err
	}
	defer f.Close()
	info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return loop{}, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return loop{}, err
	}
	return loop{path: path, dev: stat.Rdev, info: info}, nil
}

// dropLoops detaches the node's loop devices, the topmost first. Mounts of a namespace that has just died are
// undone in the background, so it waits up to ten seconds.
func (d Dir) dropLoops() error {
	var left []loop
	for range 100 {
		if left = d.loops(); len(left) == 0 {
			return nil
		}
		for i := len(left) - 1; i >= 0; i-- {
			detach(left[i].path)
		}
		time.Sleep(100 * time.Millisecond)
	}
	if left = d.loops(); len(left) > 0 {
		return fmt.Errorf("loop device %s and %d more stay attached", left[0].path, len(left)-1)
	}
	return nil
}

func detach(path string) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0) // dropLoops looks again
}

// thaw thaws every file system of the running node that stands on a loop device: one that is left frozen by a CSI
// driver that was killed would outlive its mounts.
func (d Dir) thaw(pid int) {
	root := fmt.Sprintf("/proc/%d", pid)
	raw, err := os.ReadFile(filepath.Join(root, "mounts"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) < 3 || !strings.HasPrefix(fields[0], "/dev/loop") || fields[2] == "devtmpfs" {
			continue
		}
		f, err := os.Open(filepath.Join(root, "root", fields[1]))
		if err != nil {
			continue
		}
		_ = unix.IoctlSetInt(int(f.Fd()), fiThaw, 0) // not frozen is the usual answer
		f.Close()
	}
}
