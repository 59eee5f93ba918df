package main

import "golang.org/x/sys/unix"

// usedBytes are those that a file takes on its file system: less than its size if it is sparse.
func usedBytes(file string) (int64, error) {
	var stat unix.Stat_t
	err := unix.Stat(file, &stat)
	return stat.Blocks * 512, err
}
