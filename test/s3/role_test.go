package s3

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
)

// TestInstanceRole uses a real server with credentials that come from a metadata endpoint over HTTP, a stand-in for that of a
// cloud's node: what it hands out is taken, and once it hands out what is wrong nothing is.
func TestInstanceRole(t *testing.T) {
	server := Start(t, true)
	secret := server.Options.SecretAccessKey
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Expiration":%q}`, server.Options.AccessKeyID, secret, time.Now().Add(time.Hour).Format(time.RFC3339))
	}))
	t.Cleanup(metadata.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.URL)
	opt := server.Options
	opt.AccessKeyID, opt.SecretAccessKey, opt.InstanceRole = "", "", true
	store, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), "role", []byte("content")); err != nil {
		t.Fatal(err)
	}
	body, err := store.Open(t.Context(), "role", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || string(got) != "content" {
		t.Errorf("read %q, %v", got, err)
	}
	secret = "another"
	refused, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := refused.Stat(t.Context(), "role"); err == nil {
		t.Error("credentials that are wrong are taken")
	}
}
