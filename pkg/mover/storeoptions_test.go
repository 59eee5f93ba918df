package mover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
)

func mounted(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What a Job is told and has mounted becomes the options of its store; keys are read again
// from the files, and what is missing is named.
func TestStoreOptionsOfMounts(t *testing.T) {
	p := Paths{
		Credentials: mounted(t, map[string]string{"accessKeyID": "id", "secretAccessKey": " secret\n", "sessionToken": "token"}),
		CustomerKey: mounted(t, map[string]string{"customerKey": "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\n"}),
		WebIdentity: "/web-identity",
	}
	opt, err := StoreOptions(config.Store{Encryption: "SSE-C", Lock: &config.Lock{Mode: "Compliance", Days: 7}, Proxy: "http://proxy:3128"}, p)
	if err != nil {
		t.Fatal(err)
	}
	if opt.Encryption == nil || string(opt.Encryption.CustomerKey) != strings.Repeat("\a", 32) || opt.Proxy != "http://proxy:3128" {
		t.Errorf("options: %+v", opt)
	}
	if l := opt.Lock; l == nil || l.Mode != objectstore.Compliance || l.For != 37*24*time.Hour || !l.Covers("format.json") || l.Covers("s/a/b") {
		t.Errorf("lock: %+v", l)
	}
	if err := os.WriteFile(filepath.Join(p.Credentials, "accessKeyID"), []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if keys, err := opt.Reread(); err != nil || keys.AccessKeyID != "new" || keys.SecretAccessKey != "secret" || keys.SessionToken != "token" {
		t.Errorf("keys read again: %+v, %v", keys, err)
	}
	opt, err = StoreOptions(config.Store{WebIdentity: &config.WebIdentity{RoleARN: "role"}}, p)
	if err != nil || opt.WebIdentity == nil || opt.WebIdentity.TokenFile != "/web-identity/token" || opt.Reread != nil {
		t.Errorf("web identity: %+v, %v", opt, err)
	}
	for name, tc := range map[string]struct {
		config config.Store
		paths  Paths
	}{
		"NoSecret":      {config.Store{}, Paths{Credentials: t.TempDir()}},
		"NoCustomerKey": {config.Store{Encryption: "SSE-C", InstanceRole: true}, Paths{CustomerKey: t.TempDir()}},
		"ShortKey":      {config.Store{Encryption: "SSE-C", InstanceRole: true}, Paths{CustomerKey: mounted(t, map[string]string{"customerKey": "short"})}},
	} {
		if _, err := StoreOptions(tc.config, tc.paths); !errors.Is(err, ErrMount) {
			t.Errorf("%s: %v, want ErrMount", name, err)
		}
	}
}

// Reading is as fast as allowed, and ends when nobody waits for it.
func TestReadLimit(t *testing.T) {
	source := strings.NewReader(strings.Repeat("x", 3<<20))
	began := time.Now()
	r := paced(t.Context(), source, newReadLimit(2<<20))
	if n, err := r.ReadAt(make([]byte, 3<<20), 0); err != nil || n != 3<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if took := time.Since(began); took < 900*time.Millisecond {
		t.Errorf("3 MiB at 2 MiB a second, of which one goes at once, in %s", took)
	}
	if paced(t.Context(), source, newReadLimit(0)) != source {
		t.Error("a reader without a limit is wrapped")
	}
}
