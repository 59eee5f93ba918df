package s3store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestInstanceRole: credentials come from the metadata service at its own address, with a token of its own (IMDSv2), past any
// proxy; they are asked for again before they end, and a node without a role says so.
func TestInstanceRole(t *testing.T) {
	var asked atomic.Int64
	role := "mover"
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.Host + r.URL.Path; {
		case r.Method == http.MethodPut && path == "169.254.169.254/latest/api/token":
			fmt.Fprint(w, "session")
		case r.Header.Get("X-aws-ec2-metadata-token") != "session":
			w.WriteHeader(http.StatusUnauthorized)
		case strings.HasSuffix(path, "/iam/security-credentials/"):
			fmt.Fprint(w, role)
		case strings.HasSuffix(path, "/iam/security-credentials/mover"):
			n := asked.Add(1)
			fmt.Fprintf(w, `{"Code":"Success","AccessKeyId":"key-%d","SecretAccessKey":"secret","Token":"token-%d","Expiration":%q}`,
				n, n, time.Now().Add(500*time.Millisecond).Format(time.RFC3339Nano))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(metadata.Close)
	transport := newTransport(nil, 0)
	transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, metadata.Listener.Addr().String())
	}
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		return nil, fmt.Errorf("a proxy is asked for %s", r.URL)
	}
	creds, err := newCredentials(Options{InstanceRole: true}, transport)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 2; n++ {
		got, err := creds.GetWithContext(nil)
		if err != nil || got.AccessKeyID != fmt.Sprintf("key-%d", n) || got.SecretAccessKey != "secret" || got.SessionToken != fmt.Sprintf("token-%d", n) {
			t.Fatalf("%d: %+v, %v", n, got, err)
		}
		time.Sleep(600 * time.Millisecond)
	}
	role = ""
	creds.Expire()
	if _, err := creds.GetWithContext(nil); !errors.Is(err, errCredentials) || !strings.Contains(err.Error(), "role of the node") {
		t.Errorf("a node without a role: %v", err)
	}
	metadata.Close()
	if _, err := creds.GetWithContext(nil); err == nil || errors.Is(err, errCredentials) {
		t.Errorf("a metadata service that does not answer is final: %v", err)
	}
}
