// Package tree is the format of small volumes of files: firmware state and
// documents. It knows paths and modes; the bytes are units like those of a disk.
package tree

import "time"

// Type is what an entry is.
type Type uint8

// The types of entries. Sockets, pipes and devices are not stored.
const (
	TypeDir     Type = 1
	TypeFile    Type = 2
	TypeSymlink Type = 3
)

// Entry is one file, directory or link. Path is relative, slash-separated and
// clean; "." is the root itself. Contents are not part of it.
type Entry struct {
	Path string
	Type Type
	// Mode is the permission bits with set-id and sticky, as in st_mode & 07777.
	Mode     uint32
	UID, GID uint32
	// ModTime is kept to the nanosecond.
	ModTime time.Time
	// Size of a file's contents in bytes; 0 for other types.
	Size int64
	// Target of a symlink.
	Target string
	Xattrs []Xattr
}

// Xattr is one extended attribute. Names are sorted and unique in an entry.
type Xattr struct {
	Name  string
	Value []byte
}
