package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/vmstate/vmstate/test/guest/generation"
)

const (
	efiDir        = "/sys/firmware/efi/efivars"
	generationVar = efiDir + "/" + generation.EFIName + "-" + generation.EFIGUID
	scratchVar    = efiDir + "/VmstateScratch-" + generation.EFIGUID
	secureBootVar = efiDir + "/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

	// efiAttributes: non-volatile, boot service access, runtime access.
	efiAttributes = 0x7
	attributeSize = 4

	fsImmutable = 0x10 // FS_IMMUTABLE_FL of linux/fs.h

	// efiWriteBudget is how many variables the guest writes in one boot. OVMF gives
	// the space of old records back only at a boot, 2400 of them fill the store, and
	// a boot with a full store takes three times as long. It gives nothing back
	// while there is room, so a boot that follows may find less than the budget; its
	// steps then stop on the firmware's own error.
	efiWriteBudget = 1900
)

var errEFIBudget = fmt.Errorf("%d EFI variable writes in this boot, the store is nearly full", efiWriteBudget)

// efiPlace is the EFI variable's place. It counts the writes of this boot.
type efiPlace struct{ writes atomic.Int64 }

// Mark returns the variable's mark, nil if there is no such variable.
func (e *efiPlace) Mark() (*generation.Mark, error) {
	b, err := readEFI(generationVar)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := generation.DecodeEFI(b)
	return &m, err
}

// Write replaces the variable's mark.
func (e *efiPlace) Write(m generation.Mark) error {
	b, err := m.EncodeEFI()
	if err != nil {
		return err
	}
	return e.write(generationVar, b)
}

// Scratch writes a variable that is no part of the generation.
func (e *efiPlace) Scratch(n uint64) error {
	return e.write(scratchVar, binary.BigEndian.AppendUint64(nil, n))
}

// Spent says whether the writes of this boot are used up.
func (e *efiPlace) Spent() bool { return e.writes.Load() >= efiWriteBudget }

func (e *efiPlace) write(path string, value []byte) error {
	e.writes.Add(1)
	if err := clearImmutable(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("make %s writable: %w", path, err)
	}
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	record := append(binary.LittleEndian.AppendUint32(nil, efiAttributes), value...)
	if _, err := unix.Write(fd, record); err != nil { // one write(2) is one SetVariable
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// clearImmutable takes away the flag that efivarfs sets on most variables.
func clearImmutable(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err != nil || flags&fsImmutable == 0 {
		return err
	}
	return unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags&^fsImmutable)
}

// readEFI returns a variable's value without its attributes.
func readEFI(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) < attributeSize {
		return nil, fmt.Errorf("%s: %d bytes: %w", path, len(b), generation.ErrMalformed)
	}
	return b[attributeSize:], nil
}

func secureBoot() string {
	b, err := readEFI(secureBootVar)
	if err != nil || len(b) == 0 {
		return "absent"
	}
	return fmt.Sprint(b[0])
}
