package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestServesAndIdentifies lets a real TLS handshake judge the certificates: server and client must accept each other
// and the server must see the user and groups that were asked for.
func TestServesAndIdentifies(t *testing.T) {
	authority, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	ca, err := authority.Pair()
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Cert)
	serving := issue(t, authority, Leaf{CommonName: "server", Hosts: []string{"localhost", "127.0.0.1"}})
	client := issue(t, authority, Leaf{CommonName: "admin", Organizations: []string{"system:masters"}})

	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		subject := r.TLS.PeerCertificates[0].Subject
		_, _ = io.WriteString(w, subject.CommonName+"/"+subject.Organization[0])
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{serving}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	server.StartTLS()
	defer server.Close()

	caller := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{client}}}}
	answer, err := caller.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("admin/system:masters", string(body)); diff != "" {
		t.Errorf("identity mismatch (-want +got):\n%s", diff)
	}
}

// TestClientCannotServe keeps client and serving certificates apart.
func TestClientCannotServe(t *testing.T) {
	authority, err := NewAuthority("ca")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(Leaf{CommonName: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, cert.ExtKeyUsage); diff != "" {
		t.Errorf("usage mismatch (-want +got):\n%s", diff)
	}
}

func TestKubeconfig(t *testing.T) {
	raw, err := Kubeconfig("https://10.0.0.1:6443", []byte("ca"), Pair{Cert: []byte("cert"), Key: []byte("key")})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "vmstate-test",
		"clusters": []any{map[string]any{"name": "vmstate-test", "cluster": map[string]any{"server": "https://10.0.0.1:6443", "certificate-authority-data": "Y2E="}}},
		"users":    []any{map[string]any{"name": "user", "user": map[string]any{"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"}}},
		"contexts": []any{map[string]any{"name": "vmstate-test", "context": map[string]any{"cluster": "vmstate-test", "user": "user"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Kubeconfig() mismatch (-want +got):\n%s", diff)
	}
}

func issue(t *testing.T, authority *Authority, leaf Leaf) tls.Certificate {
	t.Helper()
	pair, err := authority.Issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
