package s3store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

var _ objectstore.Locker = (*Store)(nil)

// Lock is the retention that new objects are given.
type Lock struct {
	Mode objectstore.RetentionMode
	// For is how long from the moment of writing.
	For time.Duration
	// Covers tells whether an object is given it; nil says all.
	Covers func(key string) bool `json:"-"`
}

func (l *Lock) covers(key string) bool {
	return l != nil && (l.Covers == nil || l.Covers(key))
}

const (
	invalidRequest    = "InvalidRequest"
	headerLockMode    = "X-Amz-Object-Lock-Mode"
	headerRetainUntil = "X-Amz-Object-Lock-Retain-Until-Date"
)

// denials are the answers by which servers refuse to delete or change a version that is
// locked, say that a bucket has no lock, or that there is no such version. A row fits if the answer has one of the
// codes (any if there are none) and its text holds the words, whatever their case.
var denials = []struct {
	codes []string
	words string
	kind  error
	// source is where the answer was seen.
	source string
}{
	{nil, "protected by object lock", objectstore.ErrLocked, "AWS, versitygw, NooBaa (noobaa-core#9420), Ceph 19"},
	{nil, "forbidden by object lock", objectstore.ErrLocked, "Ceph RGW: AccessDenied (ceph#39749, and its tests)"},
	{nil, "worm protected", objectstore.ErrLocked, "MinIO cmd/api-errors.go: InvalidRequest; versitygw until #1330"},
	{[]string{"ObjectLocked", "ObjectUnderRetention"}, "", objectstore.ErrLocked, "versitygw until 1.0; Dell ECS: 409"},
	{[]string{"RetentionPolicyNotMet", "ObjectUnderActiveHold"}, "", objectstore.ErrLocked, "Google Cloud Storage: 403 (gslib's tests)"},
	{[]string{"FileImmutable", "FileLocked"}, "", objectstore.ErrLocked, "Alibaba OSS: 409 (error 0026-00000202)"},
	{[]string{minio.InvalidArgument}, "version id", objectstore.ErrNotFound, "AWS for ids that are none of its own, versitygw for all that are absent"},
	{[]string{"ObjectLockConfigurationNotFoundError", "NoSuchObjectLockConfiguration"}, "", objectstore.ErrNoLock, "AWS; Ceph RGW and versitygw for objects without retention"},
	{[]string{invalidRequest}, "missing objectlockconfiguration", objectstore.ErrNoLock, "MinIO, Scality, Storj: PUT with retention"},
	{[]string{invalidRequest}, "missing object lock configuration", objectstore.ErrNoLock, "AWS, versitygw (#1755): retention of an object"},
	{[]string{invalidRequest}, "object lock not configured", objectstore.ErrNoLock, "Ceph RGW: bucket object lock not configured"},
}

// denial is what an answer says about locks and versions, nil if nothing.
func denial(resp minio.ErrorResponse) error {
	text := strings.ToLower(resp.Message)
	for _, d := range denials {
		if !strings.Contains(text, d.words) {
			continue
		}
		if len(d.codes) == 0 {
			return d.kind
		}
		for _, code := range d.codes {
			if code == resp.Code {
				return d.kind
			}
		}
	}
	return nil
}

// lockedBy finds out whether a refusal is because of a lock. Some servers say no more
// than AccessDenied (Storj, storj/edge#498), others that the method or the argument is
// wrong (versitygw#1330): there the retention itself tells. The time is added for a person.
func (s *Store) lockedBy(ctx context.Context, key, id string, refused error) error {
	if errors.Is(refused, objectstore.ErrUnreachable) || ctx.Err() != nil {
		return refused
	}
	r, err := s.Retention(ctx, key, id)
	if err != nil || !r.Until.After(time.Now()) {
		return refused
	}
	if errors.Is(refused, objectstore.ErrLocked) {
		return fmt.Errorf("until %s: %w", r.Until.UTC().Format(time.RFC3339), refused)
	}
	return fmt.Errorf("%w until %s: %w", objectstore.ErrLocked, r.Until.UTC().Format(time.RFC3339), refused)
}

// Retention is read from the answer to a HEAD, which every server gives; what
// GetObjectRetention answers is not of one form (versitygw 1.8.0 calls the element
// ObjectLockRetention).
func (s *Store) Retention(ctx context.Context, key, id string) (objectstore.Retention, error) {
	found, err := s.stat(ctx, key, id)
	if err != nil {
		return objectstore.Retention{}, fmt.Errorf("retention of %q%s: %w", key, ofVersion(id), err)
	}
	until := found.Metadata.Get(headerRetainUntil)
	if until == "" {
		return objectstore.Retention{}, nil
	}
	at, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return objectstore.Retention{}, fmt.Errorf("retention of %q%s: %w: %w", key, ofVersion(id), objectstore.ErrCorrupted, err)
	}
	r := objectstore.Retention{Mode: objectstore.Governance, Until: at}
	if strings.EqualFold(found.Metadata.Get(headerLockMode), string(minio.Compliance)) {
		r.Mode = objectstore.Compliance
	}
	return r, nil
}

func (s *Store) Retain(ctx context.Context, key, id string, r objectstore.Retention) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	mode, until := retentionMode(r.Mode), r.Until.UTC()
	err := s.try(ctx, func() error {
		return s.core.PutObjectRetention(ctx, s.bucket, s.object(key), minio.PutObjectRetentionOptions{
			Mode: &mode, RetainUntilDate: &until, VersionID: id,
		})
	})
	if err != nil {
		return fmt.Errorf("retain %q%s until %s: %w", key, ofVersion(id), until.Format(time.RFC3339), s.lockedBy(ctx, key, id, err))
	}
	return nil
}

func retentionMode(m objectstore.RetentionMode) minio.RetentionMode {
	if m == objectstore.Compliance {
		return minio.Compliance
	}
	return minio.Governance
}
