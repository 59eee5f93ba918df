package blockfile

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// makeSparse has a file keep no room for what it does not hold. Where the filesystem
// cannot do that, the file takes its whole size.
func makeSparse(f *os.File) error {
	err := control(f, windows.FSCTL_SET_SPARSE, nil, 0)
	if errors.Is(err, windows.ERROR_INVALID_FUNCTION) || errors.Is(err, windows.ERROR_NOT_SUPPORTED) {
		return nil
	}
	return err
}

// zeroRange makes a hole in a file.
func zeroRange(f *os.File, device bool, off, length int64) error {
	if device {
		return errors.ErrUnsupported
	}
	hole := struct{ from, to int64 }{off, off + length}
	return control(f, windows.FSCTL_SET_ZERO_DATA, (*byte)(unsafe.Pointer(&hole)), uint32(unsafe.Sizeof(hole)))
}

func control(f *os.File, code uint32, in *byte, size uint32) error {
	var returned uint32
	return windows.DeviceIoControl(windows.Handle(f.Fd()), code, in, size, nil, 0, &returned, nil)
}
