//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"

	vmstate "github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/restore"
	"github.com/vmstate/vmstate/test/e2e/story"
)

// keyLife is a namespace whose cluster only writes: its identity is a file here.
type keyLife struct {
	*story.Env
	t      *testing.T
	ns, vm string
	first  *story.KeyPair
}

// TestKeyLife is the life of a store's keys, with the identity outside of the cluster at all times: a restore with a ticket,
// tickets that are refused, a proof, a rotation, a distrust, new recipients for old backups, and a restore with the new
// identity alone.
func TestKeyLife(t *testing.T) {
	ctx := t.Context()
	k := newKeyLife(ctx, t)
	one := k.backup(ctx, "one")
	two := k.backup(ctx, "two")
	k.noIdentityInTheCluster(ctx)
	k.proves(ctx)
	k.restoresWithTicket(ctx, "one")

	k.must(k.cli(ctx, "rotate-keys", "main"))
	three := k.backup(ctx, "three")
	if one.Status.Export.Commit.Sequence+2 != three.Status.Export.Commit.Sequence || two.Status.Export.Commit == nil {
		t.Errorf("the backup after the rotation is %+v: want the third of the same chain", three.Status.Export.Commit)
	}
	k.distrusts(ctx)

	second := k.keygen(ctx, "second")
	out, err := k.Rewrap(ctx, k.first, second.Recipient)
	check(t, k.ns, err)
	t.Logf("rewrap: %s", out)
	k.boots(ctx, second)
	k.noIdentityInTheCluster(ctx)
	nothingLeft(ctx, t, k.ns)
}

func newKeyLife(ctx context.Context, t *testing.T) *keyLife {
	t.Helper()
	own := *env
	k := &keyLife{Env: &own, t: t, ns: "keys", vm: "db"}
	k.Bucket.Prefix += "-" + k.ns
	check(t, k.ns, k.Namespace(ctx, k.ns))
	k.first = k.keygen(ctx, "first")
	check(t, k.ns, k.Store(ctx, k.ns, k.Bucket, k.first.Recipient))
	check(t, k.ns, k.Guest(ctx, k.ns, k.vm, story.GuestOptions{Step: "4s"}))
	_, err := k.Verdict(ctx, 5*time.Minute, k.ns, k.vm)
	check(t, k.ns, err)
	check(t, k.ns, k.UntilGeneration(ctx, time.Minute, k.ns, k.vm, 1))
	check(t, k.ns, halt(ctx, k.ns, k.vm))
	t.Cleanup(func() {
		if !t.Failed() {
			if err := k.NoNamespace(context.WithoutCancel(ctx), k.ns); err != nil {
				t.Error(err)
			}
		}
	})
	return k
}

func (k *keyLife) must(_ string, err error) {
	k.t.Helper()
	check(k.t, k.ns, err)
}

func (k *keyLife) keygen(ctx context.Context, name string) *story.KeyPair {
	k.t.Helper()
	own := *k.Env
	own.Work = filepath.Join(k.Work, "keys-"+name)
	check(k.t, k.ns, os.MkdirAll(own.Work, 0o700))
	keys, err := own.Keygen(ctx)
	check(k.t, k.ns, err)
	return keys
}

// cli types a command of the product in the namespace.
func (k *keyLife) cli(ctx context.Context, args ...string) (string, error) {
	out, err := k.Run(ctx, nil, k.CLI, append(args, "-n", k.ns)...)
	k.t.Logf("$ kubectl vmstate %s\n%s%v", strings.Join(args, " "), out, err)
	return string(out), err
}

func (k *keyLife) backup(ctx context.Context, name string) *vmstate.VMStateBackup {
	k.t.Helper()
	b, err := k.Backup(ctx, k.ns, name, k.vm, nil)
	check(k.t, k.ns, err)
	return b
}

func (k *keyLife) store(ctx context.Context) *vmstate.VMStateStore {
	k.t.Helper()
	s := &vmstate.VMStateStore{}
	check(k.t, k.ns, k.Get(ctx, s, "-n", k.ns, "vmstatestore/main"))
	return s
}

// noIdentityInTheCluster looks into every Secret, report and restore of the namespace.
func (k *keyLife) noIdentityInTheCluster(ctx context.Context) {
	k.t.Helper()
	var secrets corev1.SecretList
	check(k.t, k.ns, k.Get(ctx, &secrets, "-n", k.ns, "secrets"))
	if len(secrets.Items) == 0 {
		k.t.Error("the namespace has no Secret: this looks at nothing")
	}
	for _, s := range secrets.Items {
		for name, value := range s.Data {
			if strings.Contains(string(value), "AGE-SECRET-KEY") {
				k.t.Errorf("Secret %q holds an identity in %q", s.Name, name)
			}
		}
	}
}

// proves has the identity vouch for the store, once for a key that it does not have.
func (k *keyLife) proves(ctx context.Context) {
	k.t.Helper()
	if _, err := k.cli(ctx, "prove", "main", "--identity", k.first.File, "--signing-key", strings.Repeat("A", 43)+"="); err == nil {
		k.t.Error("another signing key was vouched for")
	}
	k.must(k.cli(ctx, "prove", "main", "--identity", k.first.File, "--signing-key", k.store(ctx).Status.SigningKey))
	if s := k.store(ctx); !apimeta.IsStatusConditionTrue(s.Status.Conditions, vmstate.ConditionProven) {
		k.t.Errorf("the store is not Proven: %+v", s.Status.Conditions)
	}
}

// asks makes a restore in place and waits until it waits for somebody's keys.
func (k *keyLife) asks(ctx context.Context, name, backup, extra string) {
	k.t.Helper()
	spec := story.RestoreSpec{Name: name, Mode: "InPlace", Source: "{backupRef: {name: " + backup + "}}", Extra: extra}
	check(k.t, k.ns, k.AskRestore(ctx, k.ns, spec))
	k.until(ctx, name, func(r *vmstate.VMStateRestore) bool {
		ready := apimeta.FindStatusCondition(r.Status.Conditions, vmstate.ConditionReady)
		return ready != nil && ready.Reason == vmstate.ReasonWaitingForUnlock && strings.Contains(ready.Message, "kubectl vmstate unlock "+name)
	})
}

func (k *keyLife) until(ctx context.Context, name string, ok func(*vmstate.VMStateRestore) bool) {
	k.t.Helper()
	check(k.t, k.ns, story.Until(ctx, 5*time.Minute, 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		r := &vmstate.VMStateRestore{}
		err := k.Get(ctx, r, "-n", k.ns, "vmstaterestore/"+name)
		return err == nil && ok(r), fmt.Sprintf("%+v", r.Status.Conditions), err
	}))
}

// restoresWithTicket: a restore takes neither a ticket that is over, nor one that is for somebody else; the right one it does.
func (k *keyLife) restoresWithTicket(ctx context.Context, backup string) {
	k.t.Helper()
	k.asks(ctx, "r1", backup, "")
	_, err := k.cli(ctx, "unlock", "r1", "--identity", k.first.File, "--yes", "--expires", "1ms")
	if err == nil || !strings.Contains(err.Error(), "expired") {
		k.t.Errorf("a ticket that is over: %v", err)
	}
	check(k.t, k.ns, k.handForeign(ctx, "r1"))
	stranger := k.keygen(ctx, "stranger")
	if _, err := k.cli(ctx, "unlock", "r1", "--identity", stranger.File, "--yes"); err == nil {
		k.t.Error("an identity that opens nothing has unlocked a restore")
	}
	k.must(k.cli(ctx, "unlock", "r1", "--identity", k.first.File, "--yes"))
	check(k.t, k.ns, k.UntilReady(ctx, 5*time.Minute, k.ns, "vmstaterestore/r1", nil))
}

// handForeign answers a restore with a ticket that is sealed to somebody else, and waits until that is refused.
func (k *keyLife) handForeign(ctx context.Context, name string) error {
	rs, report := &vmstate.VMStateRestore{}, &vmstate.VMStateReport{}
	if err := k.Get(ctx, rs, "-n", k.ns, "vmstaterestore/"+name); err != nil {
		return err
	}
	resolve, _ := restore.JobNames(rs)
	if err := k.Get(ctx, report, "-n", k.ns, "vmstatereport/"+resolve); err != nil {
		return err
	}
	if report.Status.Unlock == nil {
		return errors.New("the restore asks for nothing")
	}
	sealed, err := sealedToNobody()
	if err != nil {
		return err
	}
	patch := fmt.Sprintf(`{"spec":{"ticket":{"request":%q,"sealed":%q}}}`, report.Status.Unlock.ID, sealed)
	if _, err := k.K(ctx, "-n", k.ns, "patch", "vmstatereport", resolve, "--type=merge", "-p", patch); err != nil {
		return err
	}
	return story.Until(ctx, time.Minute, 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		err := k.Get(ctx, report, "-n", k.ns, "vmstatereport/"+resolve)
		said := report.Status.Unlock
		return err == nil && said != nil && strings.Contains(said.Refused, "another process"), fmt.Sprintf("%+v", said), err
	})
}

// distrusts takes back the trust in what the keys of the first epoch have signed after the first backup. The second, which
// they signed, is restored by nobody any more; the first and the third are.
func (k *keyLife) distrusts(ctx context.Context) {
	k.t.Helper()
	k.must(k.cli(ctx, "distrust", "main", "--epoch", "1", "--last-good", "one", "--yes"))
	mark := k.store(ctx).Status.Trust
	if mark == nil || mark.KeyEpoch != 2 || len(mark.Distrust) != 1 || mark.Distrust[0].Epoch != 1 {
		k.t.Errorf("the store remembers %+v, want epoch 2 and a word on epoch 1", mark)
	}
	k.asks(ctx, "r2", "two", "")
	if _, err := k.cli(ctx, "unlock", "r2", "--identity", k.first.File, "--yes"); err == nil || !strings.Contains(err.Error(), "distrusted") {
		k.t.Errorf("a backup that is not believed any more: %v", err)
	}
	k.until(ctx, "r2", func(r *vmstate.VMStateRestore) bool {
		ready := apimeta.FindStatusCondition(r.Status.Conditions, vmstate.ConditionReady)
		return ready != nil && ready.Reason == vmstate.ReasonNotAuthentic
	})
	k.must(k.K(ctx, "-n", k.ns, "delete", "vmstaterestore", "r2", "--wait", "--timeout=120s"))
}

// boots restores the newest backup with an identity that it was not written for, and starts it; the bucket and that
// identity are enough for the first backup.
func (k *keyLife) boots(ctx context.Context, with *story.KeyPair) {
	k.t.Helper()
	k.asks(ctx, "r3", "three", "  startPolicy: Start\n")
	k.must(k.cli(ctx, "unlock", "r3", "--identity", with.File, "--yes"))
	check(k.t, k.ns, k.UntilReady(ctx, 5*time.Minute, k.ns, "vmstaterestore/r3", nil))
	verdict, err := k.Verdict(ctx, 5*time.Minute, k.ns, k.vm)
	check(k.t, k.ns, err)
	k.t.Logf("restored with the new identity: %s", verdict)
	if !strings.HasPrefix(verdict, "STATE OK") {
		k.t.Errorf("restored with the new identity the guest says %q", verdict)
	}
	for commit, good := range map[string]bool{"1": true, "2": false} {
		dir := filepath.Join(k.Work, "keys-files-"+commit)
		err := k.RestoreFiles(ctx, with, k.ns+"/"+k.vm, commit, dir)
		if (err == nil) != good || !good && !strings.Contains(err.Error(), "distrusted") {
			k.t.Errorf("backup %s out of the bucket: %v", commit, err)
		}
		if good && err == nil {
			seen, err := k.InspectFolder(ctx, dir)
			if err != nil || !seen.Moment {
				k.t.Errorf("backup %s out of the bucket is %+v, %v", commit, seen, err)
			}
		}
	}
}

// sealedToNobody is an age file that no process opens, as it goes into JSON.
func sealedToNobody() (string, error) {
	somebody, err := age.GenerateHybridIdentity()
	if err != nil {
		return "", err
	}
	var file bytes.Buffer
	w, err := age.Encrypt(&file, somebody.Recipient())
	if err != nil {
		return "", err
	}
	if _, err = w.Write([]byte("not a ticket")); err == nil {
		err = w.Close()
	}
	return base64.StdEncoding.EncodeToString(file.Bytes()), err
}
