package s3

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
)

// recorder keeps the headers of all requests that pass.
type recorder struct {
	mu   sync.Mutex
	seen []*http.Request
}

func (r *recorder) record(_ http.ResponseWriter, req *http.Request, _ int64, _ http.Handler) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, req.Clone(req.Context()))
	return false
}

// everything does what a store does once each.
func everything(t *testing.T, s *s3store.Store) {
	t.Helper()
	if _, err := s.Create(t.Context(), "k", []byte("body")); err != nil {
		t.Fatal(err)
	}
	if _, err := objectstore.Get(t.Context(), s, "k", 10); err != nil {
		t.Fatal(err)
	}
	if _, err := objectstore.GetRange(t.Context(), s, "k", 1, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
}

// TestEncryptionHeaders: versitygw does nothing about them, so that what is sent is looked
// at on the way. Those of SSE-C go with every request, those of the others with a PUT alone.
func TestEncryptionHeaders(t *testing.T) {
	const generic, kmsKey = "X-Amz-Server-Side-Encryption", "X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"
	for name, tc := range map[string]struct {
		encryption *s3store.Encryption
		put        map[string]string
	}{
		"None":       {nil, map[string]string{generic: ""}},
		"SSE-S3":     {&s3store.Encryption{}, map[string]string{generic: "AES256", kmsKey: ""}},
		"SSE-KMS":    {&s3store.Encryption{KMSKeyID: "key-1"}, map[string]string{generic: "aws:kms", kmsKey: "key-1"}},
		"BucketsKMS": {&s3store.Encryption{KMS: true}, map[string]string{generic: "aws:kms", kmsKey: ""}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{}
			opt := Start(t, false).Options
			opt.Endpoint, opt.Encryption = proxyTo(t, opt.Endpoint, r.record), tc.encryption
			s, err := s3store.New(opt)
			if err != nil {
				t.Fatal(err)
			}
			everything(t, s)
			for _, req := range r.seen {
				for header, want := range tc.put {
					if req.Method != http.MethodPut {
						want = ""
					}
					if got := req.Header.Get(header); got != want {
						t.Errorf("%s: %s is %q, want %q", req.Method, header, got, want)
					}
				}
			}
		})
	}
}

// TestCustomerKey: over TLS the key goes with every request that names an object, and
// without TLS with none.
func TestCustomerKey(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	plain := Start(t, false).Options
	plain.Encryption = &s3store.Encryption{CustomerKey: key}
	if _, err := s3store.New(plain); err == nil || !strings.Contains(err.Error(), "https") {
		t.Errorf("a customer key over plain http: %v", err)
	}
	r := &recorder{}
	srv := Start(t, false)
	front := httptest.NewTLSServer(handlerTo(t, srv.Options.Endpoint, r.record))
	defer front.Close()
	opt := srv.Options
	opt.Endpoint, opt.CABundle = front.URL, pemOf(front.Certificate())
	for _, wrong := range [][]byte{key[:31], append(key, 1)} {
		opt.Encryption = &s3store.Encryption{CustomerKey: wrong}
		if _, err := s3store.New(opt); err == nil {
			t.Errorf("a customer key of %d bytes is taken", len(wrong))
		}
	}
	opt.Encryption = &s3store.Encryption{CustomerKey: key}
	s, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	everything(t, s)
	for _, req := range r.seen {
		if got := req.Header.Get("X-Amz-Server-Side-Encryption-Customer-Key"); got != "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=" {
			t.Errorf("%s %s: customer key %q", req.Method, req.URL, got)
		}
	}
}

// TestProbeEncryption: a server that does nothing about it is told of.
func TestProbeEncryption(t *testing.T) {
	opt := Start(t, false).Options
	opt.Encryption = &s3store.Encryption{}
	for _, f := range probe.Run(t.Context(), s3store.Target(opt)).Findings {
		if f.Check == probe.CheckEncryption && f.Outcome == probe.Warning {
			return
		}
	}
	t.Error("versitygw encrypts nothing, and the probe does not say so")
}

// TestHTTPProxy: requests go through spec.s3.proxyURL, over TLS as a tunnel.
func TestHTTPProxy(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		var passed atomic.Int64
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed.Add(1)
			if r.Method == http.MethodConnect {
				tunnel(t, w, r.Host)
				return
			}
			handlerTo(t, "http://"+r.Host, never).ServeHTTP(w, r)
		}))
		defer front.Close()
		opt := Start(t, overTLS).Options
		opt.Proxy = front.URL
		s, err := s3store.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		everything(t, s)
		if passed.Load() == 0 {
			t.Errorf("TLS=%t: nothing went through the proxy", overTLS)
		}
	}
}

func tunnel(t *testing.T, w http.ResponseWriter, to string) {
	server, err := net.Dial("tcp", to)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	go func() { _, _ = io.Copy(server, client) }()
	_, _ = io.Copy(client, server)
}

// TestRotatedCredentials: the keys are replaced while the store is in use. The server
// refuses those that the files still hold for a while; keys that never were good are not
// waited for.
func TestRotatedCredentials(t *testing.T) {
	good := s3store.Keys{AccessKeyID: accessKey, SecretAccessKey: secretKey}
	old := s3store.Keys{AccessKeyID: accessKey, SecretAccessKey: "the one before"}
	var stale atomic.Bool
	var reads atomic.Int64
	opt := Start(t, false).Options
	opt.AccessKeyID, opt.SecretAccessKey, opt.Tries = "", "", 4
	// The stand-in for a server that has taken the keys back: it says so until they were
	// read twice more.
	opt.Endpoint = proxyTo(t, opt.Endpoint, func(w http.ResponseWriter, _ *http.Request, _ int64, _ http.Handler) bool {
		if !stale.Load() || reads.Load() >= 3 {
			return false
		}
		refuse(http.StatusForbidden, "InvalidAccessKeyId")(w)
		return true
	})
	opt.Reread = func() (s3store.Keys, error) { reads.Add(1); return good, nil }
	s, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(t.Context(), "before", nil); err != nil {
		t.Fatal(err)
	}
	stale.Store(true)
	if _, err := s.Create(t.Context(), "after", nil); err != nil || reads.Load() != 3 {
		t.Errorf("after the keys were replaced: %v, read %d times, want 3", err, reads.Load())
	}
	opt.Reread = func() (s3store.Keys, error) { reads.Add(1); return old, nil }
	if s, err = s3store.New(opt); err != nil {
		t.Fatal(err)
	}
	reads.Store(0)
	stale.Store(false)
	if _, err := s.Stat(t.Context(), "before"); !isDenied(err) || reads.Load() != 1 {
		t.Errorf("keys that never were good: %v, read %d times, want 1", err, reads.Load())
	}
}

// tokenService is a stand-in for AssumeRoleWithWebIdentity, which versitygw does not have:
// it gives out the server's own keys for the token, to two roles. versitygw takes no
// session token, so that only the role "session" is given one.
func tokenService(t *testing.T, asked *atomic.Int64) string {
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked.Add(1)
		session, known := map[string]string{"role/backup": "", "role/session": "session-1"}[req.FormValue("RoleArn")]
		if req.FormValue("WebIdentityToken") != "the account's token" || !known {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized</Message></Error></ErrorResponse>`)
			return
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
			`<AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration>`+
			`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			accessKey, secretKey, session, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(sts.Close)
	return sts.URL
}

// TestWebIdentity trades a token for keys once, and says who did not trust it.
func TestWebIdentity(t *testing.T) {
	r := &recorder{}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("the account's token"), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	service := tokenService(t, &asked)
	opt := Start(t, false).Options
	opt.AccessKeyID, opt.SecretAccessKey, opt.Tries = "", "", 2
	opt.Endpoint = proxyTo(t, opt.Endpoint, r.record)
	as := func(role string) *s3store.Store {
		opt.WebIdentity = &s3store.WebIdentity{TokenFile: token, RoleARN: role, Endpoint: service}
		s, err := s3store.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	everything(t, as("role/backup"))
	if asked.Load() != 1 {
		t.Errorf("the token service was asked %d times, want 1", asked.Load())
	}
	_, err := as("role/other").Stat(t.Context(), "k")
	if !isDenied(err) || !strings.Contains(err.Error(), "role/other") || strings.Contains(err.Error(), "the account's token") {
		t.Errorf("a role that does not trust the token: %v", err)
	}
	r.seen = nil
	if _, err := as("role/session").Stat(t.Context(), "k"); err == nil {
		t.Error("versitygw takes session tokens now: give one to all")
	}
	if len(r.seen) == 0 || r.seen[0].Header.Get("X-Amz-Security-Token") != "session-1" {
		t.Errorf("the session token is not sent: %d requests", len(r.seen))
	}
}

func isDenied(err error) bool { return errors.Is(err, objectstore.ErrDenied) }

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
