// Package objectstore keeps immutable objects by key: the bucket as the
// repository sees it.
//
// It knows nothing of what the objects mean. dirstore keeps them in a directory,
// s3store in an S3 bucket, memstore in memory; faultstore wraps any of them and
// fails on cue. Package storetest is the contract as tests, and probe asks a
// real store whether it keeps that contract before anything is trusted to it.
package objectstore

import (
	"context"
	"io"
	"iter"
)

// MaxObjectBytes is the largest object that Create accepts. A pack is 32 MiB; the
// rest is room for other pack sizes. The body is in memory, so this bounds that too.
const MaxObjectBytes = 256 << 20

// MaxKeyBytes is the longest key. S3 allows 1024 bytes with the prefix of the
// store in front, which may take up to 512 of them.
const MaxKeyBytes = 512

// Store keeps immutable objects by key. All methods may be called concurrently
// and stop when ctx ends. storetest.Run is this contract in code.
//
// A key is one to MaxKeyBytes bytes of segments joined by "/". A segment is of
// letters, digits, ".", "_" and "-", and does not begin with "."; ErrBadKey
// otherwise. Besides the errors named below, every method may answer
// ErrUnreachable, ErrDenied, ErrNoBucket or ErrClockSkew.
type Store interface {
	// Create stores body under key. The whole object becomes visible or none of
	// it, and when Create returns it is durable and its size and checksum are
	// confirmed as far as the store can confirm them. ErrExists if key is taken:
	// objects are never overwritten. ErrFull if the store has no room. After any
	// other error the object may or may not exist; CreateOrSame settles that.
	// The body is not kept and not changed.
	Create(ctx context.Context, key string, body []byte) (Info, error)

	// Open reads length bytes of key from offset; length < 0 reads to the end.
	// ErrNotFound comes from here, not from the first Read. ErrShort, from here
	// or from Read, if the object ends before offset+length (before offset, for
	// length < 0). A connection that breaks in the middle is resumed where it
	// broke. The caller closes.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)

	// Stat tells of key without reading it. ErrNotFound if it is absent.
	Stat(ctx context.Context, key string) (Info, error)

	// List yields the objects whose key begins with prefix, in byte order of their
	// keys. prefix is any string, also the empty one or half a segment. An error
	// comes last and ends the list: a list that ends without one is complete.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]

	// Delete removes key. Deleting an absent key succeeds.
	Delete(ctx context.Context, key string) error
}

// Info is what a store tells of one object.
type Info struct {
	Key  string
	Size int64
	// VersionID is the store's name of this very version of the object; empty
	// where the store keeps no versions. List leaves it empty.
	VersionID string
	// CRC32C is the Castagnoli checksum of the whole object. Create sets it, from
	// the body that it stored; Stat and List leave it 0.
	CRC32C uint32
}
