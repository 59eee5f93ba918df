package s3store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// byCode maps the error codes of S3, and those that servers added, to
// objectstore's errors.
var byCode = map[string]error{
	minio.NoSuchKey:                    objectstore.ErrNotFound,
	"NoSuchVersion":                    objectstore.ErrNotFound,
	minio.NoSuchBucket:                 objectstore.ErrNoBucket,
	minio.PreconditionFailed:           objectstore.ErrExists,
	minio.InvalidRange:                 objectstore.ErrShort,
	minio.RequestTimeTooSkewed:         objectstore.ErrClockSkew,
	minio.BadDigest:                    objectstore.ErrCorrupted,
	minio.InvalidDigest:                objectstore.ErrCorrupted,
	minio.IncompleteBody:               objectstore.ErrUnreachable,
	"XAmzContentSHA256Mismatch":        objectstore.ErrCorrupted,
	"XAmzContentChecksumMismatch":      objectstore.ErrCorrupted,
	"QuotaExceeded":                    objectstore.ErrFull, // Ceph, versitygw
	"NoSpaceLeftOnDevice":              objectstore.ErrFull, // versitygw
	"XMinioStorageFull":                objectstore.ErrFull,
	"XMinioAdminBucketQuotaExceeded":   objectstore.ErrFull,
	"InsufficientStorage":              objectstore.ErrFull,
	"OutOfStorageSpace":                objectstore.ErrFull,
	"OperationAborted":                 objectstore.ErrUnreachable,
	"ConditionalRequestConflict":       objectstore.ErrUnreachable, // AWS: another write of the key is under way, ask again
	minio.AuthorizationHeaderMalformed: objectstore.ErrDenied,      // the region is not the bucket's
	"XAdminUserNotFound":               objectstore.ErrDenied,      // versitygw
	minio.NotImplemented:               objectstore.ErrNotSupported,
	"MethodNotAllowed":                 objectstore.ErrNotSupported,
}

// byStatus is for answers whose code says nothing.
var byStatus = map[int]error{
	http.StatusUnauthorized:                 objectstore.ErrDenied,
	http.StatusForbidden:                    objectstore.ErrDenied,
	http.StatusPreconditionFailed:           objectstore.ErrExists,
	http.StatusRequestedRangeNotSatisfiable: objectstore.ErrShort,
	http.StatusInsufficientStorage:          objectstore.ErrFull,
	http.StatusRequestTimeout:               objectstore.ErrUnreachable,
	http.StatusTooManyRequests:              objectstore.ErrUnreachable,
	http.StatusInternalServerError:          objectstore.ErrUnreachable,
	http.StatusBadGateway:                   objectstore.ErrUnreachable,
	http.StatusServiceUnavailable:           objectstore.ErrUnreachable,
	http.StatusGatewayTimeout:               objectstore.ErrUnreachable,
}

// translate turns an answer of the client into objectstore's errors and keeps its
// text. Call it on the client's own error, before any wrapping.
func translate(err error) error {
	if err == nil {
		return nil
	}
	if resp, ok := errors.AsType[minio.ErrorResponse](err); ok {
		kind := kindOf(resp)
		if kind == nil {
			return fmt.Errorf("server answered %s: %w", resp.Code, err)
		}
		return fmt.Errorf("%w: server answered %s: %w", kind, resp.Code, regionHint(resp))
	}
	if errors.Is(err, errCredentials) {
		return fmt.Errorf("%w: %w", objectstore.ErrDenied, err)
	}
	if _, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("%w: %w", objectstore.ErrUnreachable, err)
	}
	return err
}

// kindOf is which of objectstore's errors an answer is, nil if it is none.
func kindOf(resp minio.ErrorResponse) error {
	if kind := denial(resp); kind != nil {
		return kind
	}
	if kind, known := byCode[resp.Code]; known {
		return kind
	}
	return byStatus[resp.StatusCode]
}

// regionHint names the region that a server says the bucket is in.
func regionHint(resp minio.ErrorResponse) error {
	if resp.Code == minio.AuthorizationHeaderMalformed && resp.Region != "" {
		return fmt.Errorf("%w (the bucket is in region %q)", resp, resp.Region)
	}
	return resp
}

// IsTLS tells a store that cannot be reached because of its certificate, or
// because one side speaks TLS and the other does not.
func IsTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	// net/http has no type for this one.
	return err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}

// try runs request until it succeeds, fails for good, or has been tried often
// enough. A body that did not arrive whole (ErrCorrupted) is sent again too.
func (s *Store) try(ctx context.Context, request func() error) error {
	for n := 1; ; n++ {
		err := s.once(ctx, request)
		if err == nil {
			return nil
		}
		if ended := ctx.Err(); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
		tries := s.tries
		again := errors.Is(err, objectstore.ErrUnreachable) || errors.Is(err, objectstore.ErrCorrupted)
		if !again && s.stale(err) {
			again, tries = true, 2*s.tries
		}
		if !again || IsTLS(err) || n >= tries {
			return err
		}
		if ended := wait(ctx, n); ended != nil {
			return fmt.Errorf("%w: %w", ended, err)
		}
	}
}

// once sends one request when it is its turn.
func (s *Store) once(ctx context.Context, request func() error) error {
	if err := s.pace.enter(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := translate(request())
	s.pace.leave(began, tooMuch(err))
	if err == nil {
		s.accepted.Store(true)
	}
	return err
}

// tooMuch tells an answer that asks for fewer requests.
func tooMuch(err error) bool {
	resp, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && (resp.StatusCode == http.StatusServiceUnavailable || resp.StatusCode == http.StatusTooManyRequests)
}

// wait pauses after try n: 0.2 s doubling up to 10 s, a random half of it.
func wait(ctx context.Context, n int) error {
	full := min(10*time.Second, 100*time.Millisecond<<min(n, 10))
	timer := time.NewTimer(full/2 + rand.N(full/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
