package mover

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

func TestSetup(t *testing.T) {
	store := memstore.New()
	home := newPod(t, store)
	task := home.set(t)
	keeper := &folderKeeper{t: t, dir: home.Paths.RepositoryKeys}
	again, err := Setup(t.Context(), home.Env, task, probe.Plain(store, "test"), keeper)
	if err != nil || !again.Writable || again.RepositoryID == "" || again.SigningKey == "" || keeper.kept != 0 {
		t.Errorf("second setup: %+v, %v, kept %d key sets; want the same repository, writable", again, err, keeper.kept)
	}

	// Another cluster or namespace, with the same bucket: good for restores alone.
	away := newPod(t, store)
	keeper = &folderKeeper{t: t, dir: away.Paths.RepositoryKeys}
	other, err := Setup(t.Context(), away.Env, task, probe.Plain(store, "test"), keeper)
	if err != nil || other.Writable || keeper.kept != 0 {
		t.Errorf("setup without the keys: %+v, %v; want not writable", other, err)
	}
	if other.RepositoryID != again.RepositoryID || other.SigningKey != again.SigningKey {
		t.Errorf("setup without the keys found %q, want %q", other.RepositoryID, again.RepositoryID)
	}

	// Keys of another repository.
	stranger := newPod(t, memstore.New())
	stranger.set(t)
	stranger.Store = store
	foreign, err := Setup(t.Context(), stranger.Env, task, probe.Plain(store, "test"), &folderKeeper{t: t, dir: stranger.Paths.RepositoryKeys})
	if err != nil || foreign.Writable {
		t.Errorf("setup with foreign keys: %+v, %v; want not writable", foreign, err)
	}
}

func TestSetupRefuses(t *testing.T) {
	id, err := keys.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	full := faultstore.Faults{Before: func(c faultstore.Call) error {
		if c.Op == faultstore.Create {
			return objectstore.ErrFull
		}
		return nil
	}}
	for name, tc := range map[string]struct {
		recipients []string
		faults     faultstore.Faults
		want       error
	}{
		"NoRecipient":         {nil, faultstore.Faults{}, keys.ErrRecipient},
		"MalformedRecipient":  {[]string{"age1pq1nonsense"}, faultstore.Faults{}, keys.ErrRecipient},
		"IdentityAsRecipient": {[]string{id.Secret}, faultstore.Faults{}, keys.ErrRecipient},
		"Unreachable":         {[]string{id.Recipient}, faultstore.Faults{Before: faultstore.FailFrom(1, objectstore.ErrUnreachable)}, objectstore.ErrUnreachable},
		"Full":                {[]string{id.Recipient}, full, objectstore.ErrFull},
	} {
		t.Run(name, func(t *testing.T) {
			store := faultstore.New(memstore.New(), tc.faults)
			p := newPod(t, store)
			keeper := &folderKeeper{t: t, dir: p.Paths.RepositoryKeys}
			_, err := Setup(t.Context(), p.Env, config.Setup{Recipients: tc.recipients}, probe.Plain(store, "test"), keeper)
			if !errors.Is(err, tc.want) || keeper.kept != 0 {
				t.Errorf("got %v, kept %d key sets; want %v and none", err, keeper.kept, tc.want)
			}
		})
	}
}

// Killed at every call of the store: whatever is there afterwards, the next try ends
// with a writable repository, and its keys are those that were kept.
func TestSetupKilled(t *testing.T) {
	id, err := keys.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	task := config.Setup{Recipients: []string{id.Recipient}}
	killed := errors.New("killed")
	for n := 1; ; n++ {
		inner := memstore.New()
		store := faultstore.New(inner, faultstore.Faults{Before: faultstore.FailFrom(n, killed)})
		p := newPod(t, inner)
		keeper := &folderKeeper{t: t, dir: p.Paths.RepositoryKeys}
		_, err := Setup(t.Context(), p.Env, task, probe.Plain(store, "test"), keeper)
		if err == nil {
			if n < 20 {
				t.Errorf("setup needs only %d calls: the probe is not in it", n)
			}
			return
		}
		result, err := Setup(t.Context(), p.Env, task, probe.Plain(inner, "test"), keeper)
		if err != nil || !result.Writable || keeper.kept != 1 {
			t.Fatalf("killed at call %d, then: writable %t, %v, %d key sets kept", n, result.Writable, err, keeper.kept)
		}
	}
}

// The Secret was made by an earlier try, and this pod's mounts are older.
func TestSetupKeysNotMountedYet(t *testing.T) {
	store := memstore.New()
	p := newPod(t, store)
	id, err := keys.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "secret")
	write(t, filepath.Join(elsewhere, "key"), nil)
	_, err = Setup(t.Context(), p.Env, config.Setup{Recipients: []string{id.Recipient}}, probe.Plain(store, "test"), &folderKeeper{t: t, dir: elsewhere})
	if !errors.Is(err, ErrStartAgain) || Final(err) {
		t.Errorf("got %v, final %t; want ErrStartAgain, not final", err, Final(err))
	}
	for info := range store.List(t.Context(), "") {
		t.Errorf("%q was written though its keys are not ours", info.Key)
	}
}

func TestStoreOptions(t *testing.T) {
	p := newPod(t, nil)
	task := config.Store{Endpoint: "https://s3.example.com", Bucket: "b", CABundle: true}
	if _, err := StoreOptions(task, p.Paths); !errors.Is(err, ErrMount) {
		t.Errorf("no credentials: got %v, want ErrMount", err)
	}
	write(t, filepath.Join(p.Paths.Credentials, "accessKeyID"), []byte("ID\n"))
	if _, err := StoreOptions(task, p.Paths); !errors.Is(err, ErrMount) {
		t.Errorf("no secret key: got %v, want ErrMount", err)
	}
	write(t, filepath.Join(p.Paths.Credentials, "AWS_SECRET_ACCESS_KEY"), []byte("secret"))
	if _, err := StoreOptions(task, p.Paths); !errors.Is(err, ErrMount) {
		t.Errorf("no CA bundle: got %v, want ErrMount", err)
	}
	write(t, filepath.Join(p.Paths.CA, "ca.crt"), []byte("pem"))
	opt, err := StoreOptions(task, p.Paths)
	if err != nil || opt.AccessKeyID != "ID" || opt.SecretAccessKey != "secret" || string(opt.CABundle) != "pem" {
		t.Errorf("got %+v, %v", opt, err)
	}
	if err := os.Remove(filepath.Join(p.Paths.CA, "ca.crt")); err != nil {
		t.Fatal(err)
	}
	task.CABundle = false
	if _, err := StoreOptions(task, p.Paths); err != nil {
		t.Errorf("no CA bundle asked for: %v", err)
	}
}
