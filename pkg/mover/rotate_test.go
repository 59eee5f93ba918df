package mover

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// setup runs the setup Job of a pod, whose keeper keeps new keys where they are mounted.
func (p *pod) setup(t *testing.T, task config.Setup) (SetupResult, error) {
	t.Helper()
	return Setup(t.Context(), p.Env, task, probe.Plain(p.Store, "test"), &folderKeeper{t: t, dir: p.Paths.RepositoryKeys})
}

// nextEpoch mounts what the pod of the next epoch's setup sees: the old keys as previous ones.
func (p *pod) nextEpoch(t *testing.T) {
	t.Helper()
	p.Paths.PreviousKeys, p.Paths.RepositoryKeys = p.Paths.RepositoryKeys, p.Paths.RepositoryKeys+"-next"
}

// TestSetupRotates: new keys are kept before they are known, a pod that died in between is made up for, and keys of an
// epoch that is over write nothing any more.
func TestSetupRotates(t *testing.T) {
	p := newPod(t, memstore.New())
	task := p.set(t)
	first, err := p.setup(t, task)
	if err != nil || !first.Writable || first.Superseded {
		t.Fatalf("first epoch: %+v, %v", first, err)
	}
	old := *p
	p.nextEpoch(t)
	task.Epoch = 2
	for range 2 {
		second, err := p.setup(t, task)
		if err != nil || !second.Writable || second.SigningKey != first.SigningKey {
			t.Fatalf("second epoch: %+v, %v; want writable with the same root key", second, err)
		}
	}
	p.Paths.PreviousKeys += "-removed"
	if again, err := p.setup(t, task); err != nil || !again.Writable {
		t.Errorf("without the old Secret: %+v, %v", again, err)
	}
	task.Epoch = 1
	if over, err := old.setup(t, task); err != nil || over.Writable || !over.Superseded {
		t.Errorf("keys of the first epoch: %+v, %v; want superseded", over, err)
	}
	task.Epoch = 2
	if _, err := old.setup(t, task); !errors.Is(err, keys.ErrSecret) {
		t.Errorf("keys of another epoch than asked for: %v", err)
	}
	away := newPod(t, p.Store)
	if got, err := away.setup(t, task); err != nil || got.Writable {
		t.Errorf("elsewhere: %+v, %v", got, err)
	}
}

// TestSetupRotationKilled: a pod that has kept the keys and died leaves them for the next, which does not make others.
func TestSetupRotationKilled(t *testing.T) {
	p := newPod(t, memstore.New())
	task := p.set(t)
	p.nextEpoch(t)
	task.Epoch = 2
	before, err := keysIn(p.Paths.PreviousKeys)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := before.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := (&folderKeeper{t: t, dir: p.Paths.RepositoryKeys}).Keep(t.Context(), kept.Secret()); err != nil {
		t.Fatal(err)
	}
	if got, err := p.setup(t, task); err != nil || !got.Writable {
		t.Fatalf("after the kill: %+v, %v", got, err)
	}
	f, err := keys.ReadFormat(t.Context(), p.Store)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := keys.Chain(t.Context(), p.Store, f)
	if err != nil || string(chain[2]) != string(kept.SigningKey()) {
		t.Errorf("the second epoch is not the kept keys': %v", err)
	}
	// Mounted too late: the pod is started again, and nothing is made.
	late := *p
	late.Paths.RepositoryKeys += "-unmounted"
	_, err = Setup(t.Context(), late.Env, task, probe.Plain(p.Store, "test"), &folderKeeper{t: t, dir: p.Paths.RepositoryKeys})
	if !errors.Is(err, ErrStartAgain) {
		t.Errorf("keys that are kept and not mounted: %v", err)
	}
}

// TestSetupProof: the answer to a challenge is kept in the bucket; a wrong one is a finding, and the store works on.
func TestSetupProof(t *testing.T) {
	p := newPod(t, memstore.New())
	task := p.set(t)
	got, err := p.setup(t, task)
	if err != nil || len(got.Challenges) != 1 || len(got.Proven) != 0 {
		t.Fatalf("before: %+v, %v", got, err)
	}
	ids, err := keys.ParseIdentities([]byte(p.identity.Secret))
	if err != nil {
		t.Fatal(err)
	}
	f, err := keys.ReadFormat(t.Context(), p.Store)
	if err != nil {
		t.Fatal(err)
	}
	id, err := keys.ParseID(f.Repository)
	if err != nil {
		t.Fatal(err)
	}
	fingerprint := keys.Fingerprint(p.identity.Recipient)
	proof, err := keys.Prove(got.Challenges[fingerprint], ids[0], id, f.RootKey)
	if err != nil {
		t.Fatal(err)
	}
	wrong := task
	wrong.Proofs = []config.Proof{{Recipient: fingerprint, Proof: make([]byte, 32), Answer: make([]byte, 32)}}
	got, err = p.setup(t, wrong)
	if err != nil || !got.Writable || len(got.Proven) != 0 {
		t.Errorf("a wrong answer: %+v, %v", got, err)
	}
	if last := got.Probe.Findings[len(got.Probe.Findings)-1]; last.Outcome != probe.Warning || !strings.Contains(last.Message, "does not answer its challenge") {
		t.Errorf("a wrong answer is told as %+v", last)
	}
	task.Proofs = []config.Proof{{Recipient: fingerprint, Proof: proof.MAC[:], Answer: proof.Answer[:]}}
	got, err = p.setup(t, task)
	if err != nil || len(got.Challenges) != 0 || len(got.Proven) != 1 {
		t.Errorf("after: %+v, %v", got, err)
	}
}

// TestSetupDistrust: what the store's spec says of a lost key holds for who restores.
func TestSetupDistrust(t *testing.T) {
	p := newPod(t, memstore.New())
	task := p.set(t)
	export, _ := p.exportTask(t, task)
	good, err := Export(t.Context(), p.Env, export)
	if err != nil {
		t.Fatal(err)
	}
	export.BackupUID = "forged"
	forged, err := Export(t.Context(), p.Env, export)
	if err != nil {
		t.Fatal(err)
	}
	p.nextEpoch(t)
	task.Epoch = 2
	task.Distrust = []config.Distrust{{Epoch: 1, LastGood: []config.Commit{{Key: good.Key, Digest: good.Digest}}}}
	if got, err := p.setup(t, task); err != nil || !got.Writable {
		t.Fatalf("setup: %+v, %v", got, err)
	}
	resolve := func(r ExportResult) error {
		_, err := Resolve(t.Context(), p.Env, config.Resolve{Commit: &config.Commit{Key: r.Key, Digest: r.Digest}}, nil)
		return err
	}
	if err := resolve(good); err != nil {
		t.Errorf("the last good backup: %v", err)
	}
	if err := resolve(forged); !errors.Is(err, repository.ErrNotAuthentic) || !Final(err) {
		t.Errorf("the forged one: %v", err)
	}
	task.Distrust = []config.Distrust{{Epoch: 2}}
	got, err := p.setup(t, task)
	if err != nil || got.Probe.Findings[len(got.Probe.Findings)-1].Check != "Distrust 2" {
		t.Errorf("an epoch that distrusts itself: %+v, %v", got.Probe.Findings, err)
	}
}

// TestRestoreKnows: a restore refuses a store that hides the epoch that the cluster has seen.
func TestRestoreKnows(t *testing.T) {
	p := newPod(t, memstore.New())
	task, _ := p.exportTask(t, p.set(t))
	done, err := Export(t.Context(), p.Env, task)
	if err != nil {
		t.Fatal(err)
	}
	for epoch, want := range map[uint32]error{1: nil, 2: repository.ErrNotAuthentic} {
		e := p.Env
		e.Known = repository.Known{Epoch: epoch}
		_, err := Resolve(t.Context(), e, config.Resolve{Commit: &config.Commit{Key: done.Key, Digest: done.Digest}}, nil)
		if !errors.Is(err, want) {
			t.Errorf("the cluster knows epoch %d: %v, want %v", epoch, err, want)
		}
	}
}

// TestSetBack: a bucket that shows another epoch than was seen, or not what was said of an earlier one, is used by no
// task, whether the store's spec names the distrust or not. Where it does, the setup Job says it again.
func TestSetBack(t *testing.T) {
	p := newPod(t, memstore.New())
	task := p.set(t)
	export, _ := p.exportTask(t, task)
	good, err := Export(t.Context(), p.Env, export)
	if err != nil {
		t.Fatal(err)
	}
	p.nextEpoch(t)
	task.Epoch = 2
	task.Distrust = []config.Distrust{{Epoch: 1, LastGood: []config.Commit{{Key: good.Key, Digest: good.Digest}}}}
	seen, err := p.setup(t, task)
	if err != nil || seen.Trust.Epoch != 2 || len(seen.Trust.Words) != 1 {
		t.Fatalf("setup: %+v, %v", seen, err)
	}
	p.Known = seen.Trust
	silent := task
	silent.Distrust = nil
	if got, err := p.setup(t, silent); err != nil || len(got.Trust.Words) != 1 {
		t.Fatalf("a spec that does not name it any more: %+v, %v", got, err)
	}
	all := func() map[string]error {
		out := map[string]error{}
		export.BackupUID += "x"
		_, out["export"] = Export(t.Context(), p.Env, export)
		_, out["catalogue"] = Catalogue(t.Context(), p.Env, config.Catalogue{Limit: 10}, nil)
		_, out["verify"] = Verify(t.Context(), p.Env, config.Verify{Parts: 1})
		_, out["maintain"] = Maintain(t.Context(), p.Env, config.Maintain{}, time.Now(), &folderKeeper{t: t, dir: filepath.Join(t.TempDir(), "key")})
		_, out["resolve"] = Resolve(t.Context(), p.Env, config.Resolve{Commit: &config.Commit{Key: good.Key, Digest: good.Digest}}, nil)
		_, out["setup"] = p.setup(t, silent)
		return out
	}
	check := func(what string, want error) {
		t.Helper()
		for name, err := range all() {
			if !errors.Is(err, want) || want != nil && (!Final(err) || !strings.Contains(err.Error(), what)) {
				t.Errorf("%s with %q changed: %v, want %v", name, what, err, want)
			}
		}
	}
	check("nothing", nil)
	word, err := objectstore.Get(t.Context(), p.Store, "a/distrust-1", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Store.Delete(t.Context(), "a/distrust-1"); err != nil {
		t.Fatal(err)
	}
	check("a/distrust-1", repository.ErrSetBack)
	if got, err := p.setup(t, task); err != nil || len(got.Trust.Words) != 1 {
		t.Errorf("said again: %+v, %v", got, err)
	}
	if now, err := objectstore.Get(t.Context(), p.Store, "a/distrust-1", 1<<20); err != nil || string(now) != string(word) {
		t.Errorf("what is said again differs: %v", err)
	}
	check("nothing", nil)

	before, err := keysIn(p.Paths.PreviousKeys)
	if err != nil {
		t.Fatal(err)
	}
	his, err := before.Next()
	if err != nil {
		t.Fatal(err)
	}
	recipients, err := keys.ParseRecipients(task.Recipients)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Store.Delete(t.Context(), keys.EpochKey(2)), keys.Rotate(t.Context(), p.Store, before, his, recipients)); err != nil {
		t.Fatal(err)
	}
	check("k/2.age", repository.ErrSetBack)
}
