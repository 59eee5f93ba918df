package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
)

// person answers what a report asks for, with an identity that the cluster does not have. The first ticket is spoiled.
type person struct {
	site     *site
	report   string
	identity string
	refused  string
	answered int
}

func (p *person) work(ctx context.Context, t *testing.T) {
	answered := ""
	for ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond)
		report := &v1alpha1.VMStateReport{}
		key := client.ObjectKey{Namespace: p.site.namespace, Name: p.report}
		if err := p.site.cluster.Client.Get(ctx, key, report); err != nil || report.Status.Unlock == nil {
			continue
		}
		asked := report.Status.Unlock
		if asked.ID+asked.Refused == answered {
			continue
		}
		if asked.Refused != "" {
			p.refused = asked.Refused
		}
		sealed := p.answer(t, asked)
		if p.answered++; p.answered == 1 {
			sealed = []byte("not a ticket")
		}
		report.Spec.Ticket = &v1alpha1.UnlockTicket{Request: asked.ID, Sealed: sealed}
		if err := p.site.cluster.Client.Update(ctx, report); err != nil {
			continue // the pod was quicker: look again
		}
		answered = asked.ID + asked.Refused
	}
}

func (p *person) answer(t *testing.T, asked *v1alpha1.UnlockRequest) []byte {
	q, err := ticket.Decode(asked.Request)
	if err != nil {
		t.Error(err)
		return nil
	}
	ids, err := keys.ParseIdentities([]byte(p.identity))
	if err != nil {
		t.Error(err)
		return nil
	}
	a, err := repository.AnswerTo(context.Background(), q, ids, nil, repository.Known{})
	if err != nil {
		t.Error(err)
		return nil
	}
	k := &ticket.Ticket{Request: ticket.IDOf(asked.Request), Expires: time.Now().Add(time.Minute), Epochs: a.Epochs, Data: a.Data}
	sealed, err := k.Seal(q.Recipient)
	if err != nil {
		t.Error(err)
	}
	return sealed
}

// TestUnlock: request and tickets go by way of the report, under the account that a mover has; a ticket that is none is
// refused with its reason and the next one is taken.
func TestUnlock(t *testing.T) {
	s := newSite(t)
	_, got := s.run(t, v1alpha1.TaskSetup, "setup", s.setup())
	if got.Setup == nil {
		t.Fatalf("setup: %+v", got)
	}
	s.mountKeys(t, keysName)
	export := config.Config{Store: &s.store, Export: s.exportTask(t, v1alpha1.Moment{CutEnded: metav1.NowMicro()}, v1alpha1.VolumeFacts{Name: "root"})}
	if _, got = s.run(t, v1alpha1.TaskExport, "export", export); got.Export == nil {
		t.Fatalf("export: %+v", got)
	}
	commit := got.Export.Commit
	if err := os.RemoveAll(s.paths.Identities); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(s.paths.Volumes, "root", "disk.img")
	before, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(image); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := &person{site: s, report: "import", identity: s.identity.Secret}
	done := make(chan struct{})
	go func() { defer close(done); p.work(ctx, t) }()
	code, got := s.run(t, v1alpha1.TaskImport, "import", config.Config{Store: &s.store, Import: &config.Import{
		Commit: &config.Commit{Key: commit.Key, Digest: commit.Digest},
		Disks:  []config.Disk{{Name: "root", Mode: config.Filesystem}},
		Unlock: &config.Unlock{Restore: "restore-uid"},
	}})
	cancel()
	<-done
	after, err := os.ReadFile(image)
	if code != exitDone || err != nil || string(after) != string(before) {
		t.Errorf("import: exit code %d, %+v, %d bytes back, %v", code, got, len(after), err)
	}
	if !got.Unlocked || got.Unlock != nil || !strings.Contains(p.refused, "ticket is refused") || p.answered != 3 {
		t.Errorf("unlocked %t, still asks %t, refused with %q, %d answers", got.Unlocked, got.Unlock != nil, p.refused, p.answered)
	}
}

// TestUnlockAccount: a mover cannot answer itself, and a pod that starts again forgets what the one before asked for.
func TestUnlockAccount(t *testing.T) {
	s := newSite(t)
	s.newReport(t, v1alpha1.TaskImport, "import")
	account := rest.CopyConfig(s.cluster.Config)
	account.Impersonate.UserName = "system:serviceaccount:" + s.namespace + ":" + job.ClusterRole(v1alpha1.TaskImport)
	o, err := newObjects(account, s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"ticket":{"request":"x","sealed":"eA=="}}}`)
	if _, err := o.reports.Patch(t.Context(), "import", types.MergePatchType, patch, metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a mover can hand itself a ticket: %v", err)
	}
	r := newReporter(o, "import", "pod-1")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := newHolder(r).Ask(ctx, []byte("request"), ""); err == nil {
		t.Error("a ticket came from nowhere")
	}
	if report, err := o.report(t.Context(), "import"); err != nil || report.Status.Unlock == nil || string(report.Status.Unlock.Request) != "request" {
		t.Errorf("nothing is asked for: %+v, %v", report, err)
	}
	if _, err := newReporter(o, "import", "pod-2").begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report, err := o.report(t.Context(), "import"); err != nil || report.Status.Unlock != nil {
		t.Errorf("the request of a pod that is gone stays: %+v, %v", report, err)
	}
}
