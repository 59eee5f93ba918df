// Package s3 gives tests a real S3 server, versitygw, and runs the stores' contract
// and the probe against it, over plain http and over TLS.
package s3

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/test/kube"
)

const (
	accessKey = "vmstate-test"
	secretKey = "not-a-secret-of-anyone"
	bucket    = "vm-backups"
)

// Server is one versitygw with one bucket.
type Server struct {
	// Options reach the bucket.
	Options s3store.Options
	cmd     *exec.Cmd
	args    []string
}

// Bucket is what the bucket of a server is like.
type Bucket struct {
	// TLS, with a certificate of its own.
	TLS bool
	// Versioned keeps versions; Locked has object lock, and so versions too.
	Versioned, Locked bool
}

// Start runs a server on a loopback port for the length of the test. Without the
// program, which `make parts` builds, the test fails: nothing would be proven.
func Start(t testing.TB, overTLS bool) *Server {
	t.Helper()
	return StartWith(t, Bucket{TLS: overTLS})
}

// StartWith is Start with such a bucket.
func StartWith(t testing.TB, b Bucket) *Server {
	t.Helper()
	dir := t.TempDir()
	address := freePort(t)
	s := &Server{Options: s3store.Options{
		Endpoint: "http://" + address, Bucket: bucket, Prefix: "cluster-a",
		AccessKeyID: accessKey, SecretAccessKey: secretKey, Tries: 3,
	}}
	s.args = []string{"--port", address, "--quiet"}
	if b.TLS {
		s.Options.Endpoint = "https://" + address
		s.Options.CABundle = writeCertificate(t, dir)
		s.args = append(s.args, "--cert", filepath.Join(dir, "cert.pem"), "--key", filepath.Join(dir, "key.pem"))
	}
	s.args = append(s.args, "posix")
	if b.Versioned || b.Locked {
		s.args = append(s.args, "--versioning-dir", makeDir(t, dir, "versions"))
	}
	s.args = append(s.args, makeDir(t, dir, "data"))
	s.run(t)
	s.makeBucket(t, b)
	return s
}

func makeDir(t testing.TB, in, name string) string {
	t.Helper()
	dir := filepath.Join(in, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run starts the process and waits until it accepts connections.
func (s *Server) run(t testing.TB) {
	t.Helper()
	var output bytes.Buffer
	s.cmd = exec.Command(kube.Binary(t, "versitygw"), s.args...)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+accessKey, "ROOT_SECRET_KEY="+secretKey)
	s.cmd.Stdout, s.cmd.Stderr = &output, &output
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := net.Dial("tcp", s.args[1])
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			s.kill()
			t.Fatalf("versitygw does not accept connections: %v\n%s", err, output.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *Server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func (s *Server) makeBucket(t testing.TB, b Bucket) {
	t.Helper()
	client := s.client(t)
	if err := client.MakeBucket(t.Context(), bucket, minio.MakeBucketOptions{ObjectLocking: b.Locked}); err != nil {
		t.Fatal(err)
	}
	if b.Versioned && !b.Locked {
		if err := client.EnableVersioning(t.Context(), bucket); err != nil {
			t.Fatal(err)
		}
	}
}

// client is the library's own, for what is none of a store's business.
func (s *Server) client(t testing.TB) *minio.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.Options.CABundle)
	secure := len(s.Options.CABundle) > 0
	transport, err := minio.DefaultTransport(secure)
	if err != nil {
		t.Fatal(err)
	}
	if secure {
		transport.TLSClientConfig.RootCAs = pool
	}
	client, err := minio.New(s.args[1], &minio.Options{Creds: credentials.NewStaticV4(accessKey, secretKey, ""), Secure: secure, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// writeCertificate makes a certificate for 127.0.0.1 in dir and returns it in PEM.
func writeCertificate(t testing.TB, dir string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "vmstate test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for name, content := range map[string][]byte{"cert.pem": cert, "key.pem": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert
}
