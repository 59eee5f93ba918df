package main

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// TestCatalogue: what a backup's record says is told with the repository's keys, and with an
// identity alone; without either it is said what is missing.
func TestCatalogue(t *testing.T) {
	s := newSite(t)
	_, got := s.run(t, v1alpha1.TaskSetup, "setup", s.setup())
	s.mountKeys(t, keysName)
	s.store.Checksum, s.store.SigningKey = got.Setup.ChecksumMode, got.Setup.SigningKey
	at := metav1.NewMicroTime(time.Date(2026, 11, 30, 2, 0, 4, 123_456_000, time.UTC))
	moment := v1alpha1.Moment{
		Disks: v1alpha1.DisksSingle, State: v1alpha1.StateNone, Quiesce: v1alpha1.QuiesceNoAgent, Attempts: 1, CutStarted: at, CutEnded: at,
	}
	facts := v1alpha1.VolumeFacts{Name: "root", Role: v1alpha1.RoleDisk, VolumeMode: "Filesystem", SizeBytes: 1 << 30}
	code, got := s.run(t, v1alpha1.TaskExport, "export", config.Config{Store: &s.store, Export: s.exportTask(t, moment, facts)})
	if code != exitDone {
		t.Fatalf("export: %+v", got)
	}
	facts.SizeBytes = 3 << 20
	want := &v1alpha1.CatalogueResult{Through: got.Export.Commit.Key, Entries: []v1alpha1.CatalogueEntry{{
		Commit: got.Export.Commit, VMNamespace: "prod", VMName: "db", VMUID: "vm-uid", BackupNamespace: "prod", BackupName: "nightly", BackupUID: "backup-uid",
		TakenAt: moment.CutEnded, Moment: &moment, Volumes: []v1alpha1.VolumeFacts{facts}, StoredBytes: got.Export.SentBytes,
	}}}
	list := config.Config{Store: &s.store, Catalogue: &config.Catalogue{Limit: 10}}
	for i, opener := range []string{"keys and identity", "identity", "nothing"} {
		code, got := s.run(t, v1alpha1.TaskCatalogue, fmt.Sprintf("catalogue-%d", i), list)
		switch {
		case opener == "nothing":
			if code != exitFinal || got.Reason != v1alpha1.ReasonSecretNotFound {
				t.Errorf("with nothing to open records: exit code %d, %s: %s", code, got.Reason, got.Message)
			}
		case code != exitDone:
			t.Errorf("with %s: exit code %d, %s: %s", opener, code, got.Reason, got.Message)
		default:
			if diff := cmp.Diff(want, got.Catalogue); diff != "" {
				t.Errorf("with %s (-want +got):\n%s", opener, diff)
			}
		}
		next := map[int]string{0: s.paths.RepositoryKeys, 1: s.paths.Identities}[i]
		if err := os.RemoveAll(next); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEntryOf: what this version does not know of a backup is left out, and hides no other.
func TestEntryOf(t *testing.T) {
	later := &repository.Commit{Moment: []byte(`{"disks":"Telepathy"}`)}
	if e := entryOf(later); e.Moment != nil {
		t.Errorf("a moment that the API server refuses is told: %+v", e.Moment)
	}
	later.Volumes = []repository.VolumeResult{{Name: "x", Role: "Memory"}}
	got, err := pageOf("", &repository.Catalogue{Commits: []*repository.Commit{later, {}}})
	if err != nil || len(got.Entries) != 1 || len(got.Damaged) != 1 {
		t.Errorf("a volume of a later role: %+v, %v", got, err)
	}
}

// TestPageOf: a report never grows past what etcd takes, and what is left out is told as more.
func TestPageOf(t *testing.T) {
	page := &repository.Catalogue{Through: "c/9999"}
	for i := range 2000 {
		c := &repository.Commit{VM: repository.VM{Name: fmt.Sprintf("%0500d", i)}}
		c.Key = fmt.Sprintf("c/%04d", i)
		page.Commits = append(page.Commits, c)
		page.Damaged = append(page.Damaged, repository.BrokenCommit{Key: c.Key + "x", Err: errors.New("cut")})
	}
	got, err := pageOf("", page)
	if err != nil {
		t.Fatal(err)
	}
	n := len(got.Entries)
	if n == 0 || n >= 2000 || !got.More || got.Through != page.Commits[n-1].Key || len(got.Damaged) > maxFaults {
		t.Errorf("%d entries through %q, more %v, %d damaged", n, got.Through, got.More, len(got.Damaged))
	}
}
