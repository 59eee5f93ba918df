package objectstore

import "errors"

// The errors of a Store. Implementations wrap them around their own error, which
// keeps its text; ask with errors.Is.
var (
	// ErrNotFound: no object has that key. Never used for an object that is there
	// but cannot be read.
	ErrNotFound = errors.New("object not found")
	// ErrExists: an object has that key already.
	ErrExists = errors.New("object exists")
	// ErrShort: the object ends before the range that was asked for.
	ErrShort = errors.New("object is shorter than the range asked for")
	// ErrBadKey: the key breaks the rules told at Store.
	ErrBadKey = errors.New("malformed key")
	// ErrTooLarge: the body or the object is larger than the caller allows.
	ErrTooLarge = errors.New("object too large")
	// ErrUnreachable: no answer came: name not resolved, connection refused or
	// broken, TLS not agreed, or the server answered that it is not able to. A
	// later try may work. It says nothing about what the store holds.
	ErrUnreachable = errors.New("store unreachable")
	// ErrDenied: the store refuses these credentials, or refuses them this act.
	ErrDenied = errors.New("access denied by the store")
	// ErrNoBucket: the bucket or the directory itself does not exist.
	ErrNoBucket = errors.New("bucket does not exist")
	// ErrFull: the store has no room, or a quota is used up.
	ErrFull = errors.New("store is full")
	// ErrClockSkew: the store refuses requests because its clock and ours differ
	// by more than it allows (15 minutes on S3).
	ErrClockSkew = errors.New("clock differs too much from the store's")
	// ErrLocked: a retention or a hold forbids to delete this version, or to shorten its
	// retention. It ends with the retention's time; until then a retry is in vain.
	ErrLocked = errors.New("object is locked")
	// ErrNotSupported: the server does not know this kind of request.
	ErrNotSupported = errors.New("not supported by the store")
	// ErrNoLock: the bucket has no object lock, so that nothing can be retained in it.
	ErrNoLock = errors.New("bucket has no object lock")
	// ErrCorrupted: what the store kept or sent is not what was sent to it or
	// asked of it, by size or checksum.
	ErrCorrupted = errors.New("object corrupted on its way")
)
