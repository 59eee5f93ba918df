package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Bucket is how a bucket is set up, as far as the server tells.
type Bucket struct {
	// Versioned: what is deleted or overwritten stays as a version.
	Versioned bool
	// Locks: object lock is on.
	Locks bool
	// Default is what the bucket locks each new object for; 0 for nothing.
	Default time.Duration
	// DefaultMode is the mode of that.
	DefaultMode objectstore.RetentionMode
	// Unknown says why the server did not tell, if it did not.
	Unknown error
}

// Wanted is what is asked of the store beyond keeping objects.
type Wanted struct {
	// Lock: the store's objects whose keys begin with LockedPrefix of the probe are
	// created with a retention of lockFor, as those of backups will be.
	Lock bool
	// Encryption that the server is asked for: SSE-S3, SSE-KMS or SSE-C; empty for none.
	Encryption string
}

// Setup is a Target that knows of versions, locks and encryption by the server.
type Setup interface {
	Target
	Wanted() Wanted
	// Bucket asks how the bucket is set up.
	Bucket(ctx context.Context) (Bucket, error)
	// EncryptedAs is how the server says that it encrypts key; empty for not at all.
	EncryptedAs(ctx context.Context, key string) (string, error)
}

// LockFor is the retention of the probe's own locked objects. They cannot be deleted
// before, and are left to the next probe.
const LockFor = time.Minute

// LockedName begins the name of an object that a probe locks.
const LockedName = "locked-"

func (p *probe) wanted() Wanted {
	if s, ok := p.target.(Setup); ok {
		return s.Wanted()
	}
	return Wanted{}
}

// bucket looks at versions and object lock before anything is written.
func (p *probe) bucket(ctx context.Context) bool {
	s, ok := p.target.(Setup)
	if !ok {
		return true
	}
	b, err := s.Bucket(ctx)
	if err != nil {
		return p.failed(CheckBucket, "ask how the bucket is set up", err)
	}
	p.setup = b
	switch {
	case b.Unknown != nil:
		p.found(CheckBucket, Warning, "the server does not say whether the bucket keeps versions or has object lock (%v): allow s3:GetBucketVersioning and s3:GetBucketObjectLockConfiguration to see it here", b.Unknown)
	case b.Versioned:
		p.found(CheckBucket, OK, "the bucket keeps versions: what is overwritten or deleted by others stays readable. Deleting frees no space until versions are deleted too")
	default:
		p.found(CheckBucket, OK, "the bucket keeps no versions")
	}
	return p.lockable(b)
}

// lockable says early, and in plain words, that a lock is asked for and cannot be had.
func (p *probe) lockable(b Bucket) bool {
	switch {
	case p.wanted().Lock && b.Unknown == nil && !b.Locks:
		return p.failed(CheckLock, "find object lock on the bucket", fmt.Errorf("%w: spec.s3.objectLock asks for it", objectstore.ErrNoLock))
	case !p.wanted().Lock && b.Default > 0:
		p.found(CheckLock, Warning, "the bucket itself locks each new object for %s (%s): nothing can be deleted before, sessions and test objects neither. Set spec.s3.objectLock, so that vmstate locks what backups need and extends that, and take the default away", days(b.Default), b.DefaultMode)
	case !p.wanted().Lock && b.Locks:
		p.found(CheckLock, OK, "the bucket has object lock; spec.s3.objectLock is not set, so that backups are not locked")
	}
	return true
}

func days(d time.Duration) string { return fmt.Sprintf("%d days", int(d.Hours()+12)/24) }

// lock creates an object as those of backups will be, and tries to delete it.
func (p *probe) lock(ctx context.Context) bool {
	if !p.wanted().Lock {
		return true
	}
	locker, ok := p.store.(objectstore.Locker)
	if !ok {
		return p.failed(CheckLock, "lock an object", objectstore.ErrNoLock)
	}
	key := p.key(LockedName + "version")
	info, err := p.store.Create(ctx, key, randomBody(1000))
	if err != nil {
		return p.failed(CheckLock, "create an object with a retention", err)
	}
	p.locked = append(p.locked, key)
	r, err := locker.Retention(ctx, key, info.VersionID)
	if err == nil && (info.VersionID == "" || r.Until.Before(time.Now())) {
		err = fmt.Errorf("%w: it has version %q and is retained until %s", objectstore.ErrNoLock, info.VersionID, r.Until)
	}
	if err != nil {
		return p.failed(CheckLock, "see the retention of an object", err)
	}
	err = locker.DeleteVersion(ctx, key, info.VersionID)
	switch {
	case err == nil:
		return p.failed(CheckLock, "see a locked object stay", fmt.Errorf("%w: the store deleted it", objectstore.ErrNoLock))
	case !errors.Is(err, objectstore.ErrLocked):
		return p.failed(CheckLock, "delete a locked object", fmt.Errorf("the answer does not say that it is locked: %w", err))
	}
	p.found(CheckLock, OK, "the store retains a locked object (%s) and refuses to delete it", r.Mode)
	return true
}

// encryption compares what was asked of the server with what it says.
func (p *probe) encryption(ctx context.Context) bool {
	s, ok := p.target.(Setup)
	if !ok || s.Wanted().Encryption == "" {
		return true
	}
	key := p.key("encryption")
	if err := p.create(ctx, key, randomBody(1000)); err != nil {
		return p.failed(CheckEncryption, "create an object with encryption by the server", err)
	}
	as, err := s.EncryptedAs(ctx, key)
	switch {
	case err != nil:
		return p.failed(CheckEncryption, "see how an object is encrypted", err)
	case as == "":
		p.found(CheckEncryption, Warning, "the store was asked for %s and does not say that it does it. Backups are encrypted before they are sent, whatever the store does", s.Wanted().Encryption)
	default:
		p.found(CheckEncryption, OK, "the store was asked for %s and says %s", s.Wanted().Encryption, as)
	}
	return true
}

// sweep deletes what earlier probes had to leave, since it was locked. What cannot go
// yet is left to the next one.
func (p *probe) sweep(ctx context.Context) {
	if !p.setup.Versioned {
		return
	}
	for v, err := range objectstore.Versions(ctx, p.store, "probe/") {
		if err != nil {
			return
		}
		_ = objectstore.DeleteVersion(ctx, p.store, v.Key, v.ID) // most often it is locked still
	}
}
