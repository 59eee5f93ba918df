//go:build !linux && !windows

package blockfile

import (
	"errors"
	"os"
)

// makeSparse has nothing to do: what was never written takes no room.
func makeSparse(*os.File) error { return nil }

// zeroRange has the zeros written.
func zeroRange(*os.File, bool, int64, int64) error { return errors.ErrUnsupported }
