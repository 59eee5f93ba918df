//go:build !linux

package blockfile

import (
	"iter"
	"os"
)

// Elsewhere than on Linux, where the movers run, there is only the command line, which
// brings backups back as files. It reads and writes plainly.

func openDirect(string, int) *os.File { return nil }

// sectorSize is not asked for: a disk goes to a device with whatever sectors it has.
func sectorSize(*os.File) (int, error) { return 0, nil }

func inOrder(*os.File) {}

func forget(*os.File, int64, int64) {}

func datasync(f *os.File) error { return f.Sync() }

func extents(_ *os.File, from, to int64) iter.Seq2[Extent, error] { return all(from, to) }
