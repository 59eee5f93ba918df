package main

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/vmstate/vmstate/test/guest/protocol"
	"github.com/vmstate/vmstate/test/guest/tpmnv"
)

// Requests of linux/fs.h that package unix does not name.
const (
	ioctlFreeze = 0xC0045877
	ioctlThaw   = 0xC0045878
)

var errFrozen = errors.New("file system is frozen already")

// machine is the guest with its devices, as console and agent see it.
type machine struct {
	guest   *protocol.Guest
	tpm     *tpmnv.TPM
	efi     *efiPlace
	fs      *dataFS
	stepper *stepper
}

// power ends the machine; cmd is a unix.LINUX_REBOOT_CMD_. A step in flight is
// finished first, so a shutdown leaves all three places equal.
func (m *machine) power(cmd int) {
	_, _ = m.fs.Thaw() // a frozen step would wait for ever
	m.stepper.close()
	say("BYE")
	unix.Sync()
	_ = unix.Unmount(dataDir, 0)
	_ = unix.Reboot(cmd)
}

// dataFS freezes the data file system. Writers then wait in the kernel.
type dataFS struct {
	mu     sync.Mutex
	frozen bool
}

// Frozen says whether Freeze is in force.
func (f *dataFS) Frozen() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.frozen
}

// Freeze returns how many file systems it froze.
func (f *dataFS) Freeze() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen {
		return 0, errFrozen
	}
	if err := ioctlData(ioctlFreeze); err != nil {
		return 0, fmt.Errorf("freeze: %w", err)
	}
	f.frozen = true
	return 1, nil
}

// Thaw returns how many file systems it thawed; 0 if none was frozen.
func (f *dataFS) Thaw() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.frozen {
		return 0, nil
	}
	if err := ioctlData(ioctlThaw); err != nil {
		return 0, fmt.Errorf("thaw: %w", err)
	}
	f.frozen = false
	return 1, nil
}

func ioctlData(request uint) error {
	fd, err := unix.Open(dataDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.IoctlSetInt(fd, request, 0)
}
