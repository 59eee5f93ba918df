// Package s3store is an objectstore.Store in a bucket of an S3 server.
//
// An object is one PUT with "If-None-Match: *", never a multipart upload, with
// the checksum that the server was found to verify (package probe). Requests are
// tried again by this package, not by the client library: with a fresh body each
// time, and for reads from where the connection broke.
package s3store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"golang.org/x/time/rate"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Addressing says where the bucket's name goes in a request.
type Addressing string

const (
	// Path is https://host/bucket/key; every server that people run themselves knows it.
	Path Addressing = "Path"
	// VirtualHosted is https://bucket.host/key.
	VirtualHosted Addressing = "VirtualHosted"
)

// Options says which bucket, as whom, and how.
type Options struct {
	// Endpoint is the server with its scheme, http or https, and nothing behind
	// the port: https://s3.example.com:9000.
	Endpoint string
	// Bucket exists already.
	Bucket string
	// Prefix comes before every key, with a "/" between; empty for none.
	Prefix string
	// Region of the bucket; empty means us-east-1, which most servers take.
	Region string
	// Addressing; empty means Path.
	Addressing Addressing
	// Credentials: one of the four. AccessKeyID, SecretAccessKey and, for those that end,
	// SessionToken; Reread, which is asked for them now and then; WebIdentity; or the role
	// of the machine that we run on, which its metadata service gives (EC2, ECS, EKS pod
	// identity).
	AccessKeyID, SecretAccessKey, SessionToken string
	Reread                                     func() (Keys, error) `json:"-"`
	WebIdentity                                *WebIdentity
	InstanceRole                               bool
	// Proxy is the HTTP proxy to go through; empty takes that of the environment
	// (HTTPS_PROXY, HTTP_PROXY, NO_PROXY).
	Proxy string
	// Encryption by the server; nil asks for none.
	Encryption *Encryption
	// UploadBytesPerSecond bounds what is sent; 0 for no bound.
	UploadBytesPerSecond int64
	// CABundle holds certificates in PEM to trust beside those of the system.
	CABundle []byte
	// Checksum is what the server verifies a PUT by; empty means SHA256.
	Checksum Checksum
	// Lock is the retention of new objects; nil for none.
	Lock *Lock
	// Tries bounds how often one request is tried while the store is unreachable.
	// The waits between double from 0.2 s to 10 s. 0 means 10 tries, about a minute.
	Tries int
	// Stall ends a connection on which nothing has moved for so long; 0 means a minute.
	// There is no limit on how long a request takes while bytes move.
	Stall time.Duration
}

// Store keeps objects in a bucket.
type Store struct {
	core     minio.Core
	bucket   string
	prefix   string
	checksum Checksum
	lock     *Lock
	sse      encrypt.ServerSide
	tries    int
	clock    *clock
	pace     *pace
	upload   *rate.Limiter

	credentials *credentials.Credentials
	renewable   bool        // credentials may change
	accepted    atomic.Bool // the store has taken them once
}

var _ objectstore.Deleter = (*Store)(nil)

// New checks opt and returns the store. It sends no request.
func New(opt Options) (*Store, error) {
	endpoint, err := url.Parse(opt.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", opt.Endpoint, err)
	}
	if endpoint.Host == "" || endpoint.Scheme != "https" && endpoint.Scheme != "http" || strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("endpoint %q: want http:// or https:// and a host, nothing behind it", opt.Endpoint)
	}
	if opt.Checksum == "" {
		opt.Checksum = SHA256
	}
	if err := opt.Checksum.check(); err != nil {
		return nil, err
	}
	if opt.Tries <= 0 {
		opt.Tries = 10
	}
	s := &Store{
		bucket:    opt.Bucket,
		prefix:    strings.Trim(opt.Prefix, "/"),
		checksum:  opt.Checksum,
		lock:      opt.Lock,
		tries:     opt.Tries,
		pace:      newPace(),
		upload:    newLimit(opt.UploadBytesPerSecond),
		renewable: opt.Reread != nil || opt.WebIdentity != nil || opt.InstanceRole,
	}
	if s.sse, err = opt.Encryption.serverSide(endpoint); err != nil {
		return nil, err
	}
	if err := s.connect(endpoint, opt); err != nil {
		return nil, fmt.Errorf("endpoint %q: %w", opt.Endpoint, err)
	}
	return s, nil
}

// connect makes the client. It sends nothing.
func (s *Store) connect(endpoint *url.URL, opt Options) error {
	roots, err := rootCAs(opt.CABundle)
	if err != nil {
		return err
	}
	transport := newTransport(&tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, opt.Stall)
	if opt.Proxy != "" {
		proxy, err := url.Parse(opt.Proxy)
		if err != nil || proxy.Host == "" {
			return fmt.Errorf("proxy %q: want http:// or https:// and a host", opt.Proxy)
		}
		transport.Proxy = http.ProxyURL(proxy)
	}
	if s.credentials, err = newCredentials(opt, transport); err != nil {
		return err
	}
	s.clock = &clock{next: transport, pace: s.pace}
	s.core.Client, err = newClient(endpoint, opt, s.credentials, s.clock)
	return err
}

func newClient(endpoint *url.URL, opt Options, creds *credentials.Credentials, transport http.RoundTripper) (*minio.Client, error) {
	lookup := minio.BucketLookupPath
	if opt.Addressing == VirtualHosted {
		lookup = minio.BucketLookupDNS
	}
	region := opt.Region
	if region == "" {
		region = "us-east-1" // else the client asks for it, which needs a permission of its own
	}
	return minio.New(endpoint.Host, &minio.Options{
		Creds:           creds,
		Secure:          endpoint.Scheme == "https",
		Transport:       transport,
		Region:          region,
		BucketLookup:    lookup,
		TrailingHeaders: opt.Checksum == CRC32CTrailer,
		MaxRetries:      1,
	})
}

func rootCAs(bundle []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if len(bundle) > 0 && !pool.AppendCertsFromPEM(bundle) {
		return nil, errors.New("the CA bundle holds no certificate in PEM")
	}
	return pool, nil
}

func (s *Store) Stat(ctx context.Context, key string) (objectstore.Info, error) {
	return s.StatVersion(ctx, key, "")
}

// because finds out what a HEAD could not say: its answer has no body, so that an
// absent bucket, an absent object and an unknown user may look the same.
func (s *Store) because(ctx context.Context, key, id string, bare error) error {
	if resp, ok := errors.AsType[minio.ErrorResponse](bare); !ok || resp.StatusCode >= http.StatusInternalServerError {
		return bare
	}
	err := s.try(ctx, func() error {
		body, _, _, err := s.core.GetObject(ctx, s.bucket, s.object(key), minio.GetObjectOptions{VersionID: id, ServerSideEncryption: s.sse})
		if err == nil {
			err = body.Close()
		}
		return err
	})
	if err == nil {
		return bare
	}
	return err
}

func (s *Store) Delete(ctx context.Context, key string) error {
	if err := objectstore.CheckKey(key); err != nil {
		return err
	}
	err := s.try(ctx, func() error {
		return s.core.RemoveObject(ctx, s.bucket, s.object(key), minio.RemoveObjectOptions{})
	})
	if err != nil && !errors.Is(err, objectstore.ErrNotFound) {
		return fmt.Errorf("delete %q: %w", key, err)
	}
	return nil
}

// object is the name of key in the bucket.
func (s *Store) object(key string) string {
	if s.prefix == "" {
		return key
	}
	return s.prefix + "/" + key
}
