package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/test/assets"
)

const (
	bucket    = "bench"
	accessKey = "bench"
	secretKey = "not-a-secret-of-anyone"
)

// server is a real S3 server, versitygw, behind a proxy that speaks TLS and counts.
// The proxy's work is this process's, so it is not in the figures of any engine.
type server struct {
	options s3store.Options
	caFile  string

	dir   string
	gate  *exec.Cmd
	front *http.Server

	mu      sync.Mutex
	counted traffic
}

// traffic is what an engine asked of the server.
type traffic struct {
	put, get, list, head, other int
	sent, received              int64 // bytes of bodies, as the engine sees them
}

// startServer starts the server with its files in dir.
func startServer(ctx context.Context, dir string) (*server, error) {
	s := &server{dir: dir, caFile: filepath.Join(dir, "ca.pem")}
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
		return nil, err
	}
	behind, err := s.startGate(ctx)
	if err == nil {
		err = s.startFront(behind)
	}
	if err == nil {
		err = s.makeBucket(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *server) stop() error {
	var err error
	if s.front != nil {
		err = s.front.Close()
	}
	if s.gate != nil && s.gate.Process != nil {
		err = errors.Join(err, s.gate.Process.Kill())
		_ = s.gate.Wait() // it was killed
	}
	return err
}

// objects is the folder that holds the bucket.
func (s *server) objects() string { return filepath.Join(s.dir, "data", bucket) }

// take returns what was counted and begins anew.
func (s *server) take() traffic {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.counted
	s.counted = traffic{}
	return was
}

// startGate starts versitygw, which `make parts` builds, on a port of its own.
func (s *server) startGate(ctx context.Context) (address string, err error) {
	folder, err := assets.Folder()
	if err != nil {
		return "", err
	}
	program := filepath.Join(folder, "versitygw")
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("the S3 server is not built: run `make parts` first, or measure with -stores dir: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	s.gate = exec.CommandContext(ctx, program, "--port", address, "--quiet", "posix", filepath.Join(s.dir, "data"))
	s.gate.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
	if err := s.gate.Start(); err != nil {
		return "", err
	}
	for range 500 {
		if c, err := net.Dial("tcp", address); err == nil {
			return address, c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return "", errors.New("versitygw does not accept connections")
}

// startFront starts the proxy, with a certificate that only lives as long.
func (s *server) startFront(behind string) error {
	certificate, err := s.certificate()
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return err
	}
	target := &url.URL{Scheme: "http", Host: behind}
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		ErrorLog: log.New(io.Discard, "", 0), // engines tell of what goes wrong
	}
	s.front = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.count(r)
		r.Body = &countedBody{r.Body, s}
		pass.ServeHTTP(&countedAnswer{w, s}, r)
	})}
	go func() { _ = s.front.Serve(l) }() // it ends with Close
	s.options = s3store.Options{
		Endpoint: "https://" + l.Addr().String(), Bucket: bucket, AccessKeyID: accessKey, SecretAccessKey: secretKey,
	}
	s.options.CABundle, err = os.ReadFile(s.caFile)
	return err
}

func (s *server) count(r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, object, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodGet && object == "":
		s.counted.list++
	case r.Method == http.MethodGet:
		s.counted.get++
	case r.Method == http.MethodHead:
		s.counted.head++
	case r.Method == http.MethodPut:
		s.counted.put++
	default:
		s.counted.other++
	}
}

type countedBody struct {
	io.ReadCloser
	s *server
}

func (c *countedBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.counted.sent += int64(n)
	return n, err
}

type countedAnswer struct {
	http.ResponseWriter
	s *server
}

func (c *countedAnswer) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.counted.received += int64(n)
	return n, err
}

func (s *server) certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vmstate bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, os.WriteFile(s.caFile, text, 0o600)
}

// makeBucket makes the bucket and has the probe choose the checksums, as a store's
// set-up does.
func (s *server) makeBucket(ctx context.Context) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.options.CABundle)
	client, err := minio.New(strings.TrimPrefix(s.options.Endpoint, "https://"), &minio.Options{
		Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Secure: true,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	})
	if err != nil {
		return err
	}
	if err := client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
		return fmt.Errorf("make bucket: %w", err)
	}
	found := probe.Run(ctx, s3store.Target(s.options))
	s.options.Checksum = s3store.Checksum(found.Checksum)
	return found.Err
}
