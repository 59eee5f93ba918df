package controllers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/store"
	"github.com/vmstate/vmstate/test/kube"
)

// held is the record of a backup of prod/db in a store.
func held(vm string, sequence int) v1alpha1.CatalogueEntry {
	chain := strings.Repeat(vm[:1], 32)
	return v1alpha1.CatalogueEntry{
		Commit: v1alpha1.CommitRef{
			Key:    fmt.Sprintf("c/%s/%010d-%s", chain, sequence, strings.Repeat("0", 32)),
			Digest: strings.Repeat(vm[:1]+fmt.Sprint(sequence%10), 32), Sequence: int64(sequence),
		},
		VMNamespace: "prod", VMName: "db", VMUID: types.UID("vm-" + vm),
		BackupNamespace: "prod", BackupName: "nightly", BackupUID: types.UID(fmt.Sprintf("%s-%d", vm, sequence)), TakenAt: metav1.NewMicroTime(time.Unix(1_790_000_000, 0)),
		Moment: &v1alpha1.Moment{
			Disks: v1alpha1.DisksSingle, State: v1alpha1.StateWitness, Quiesce: v1alpha1.QuiesceFrozen, Attempts: 1,
			CutStarted: metav1.NewMicroTime(time.Unix(1_790_000_000, 0)), CutEnded: metav1.NewMicroTime(time.Unix(1_790_000_000, 0)),
		},
		Volumes: []v1alpha1.VolumeFacts{
			{Name: "root", Role: v1alpha1.RoleDisk, VolumeMode: "Block", SizeBytes: 1 << 30},
			{Name: "persistent-state-for-db-x", Role: v1alpha1.RoleFirmwareState, VolumeMode: "Filesystem", SizeBytes: 1 << 20},
		},
		StoredBytes: 4096,
	}
}

// holding has a mover find these records.
func (w *storeWorld) holding(entries ...v1alpha1.CatalogueEntry) {
	w.holds = v1alpha1.CatalogueResult{Entries: entries, Through: entries[len(entries)-1].Commit.Key}
}

// names are the backups in the namespace.
func (w *storeWorld) names() []string {
	list := &v1alpha1.VMStateBackupList{}
	w.must(w.cluster.Client.List(w.t.Context(), list, client.InNamespace(w.store.Namespace)))
	var out []string
	for _, b := range list.Items {
		out = append(out, b.Name)
	}
	slices.Sort(out)
	return out
}

// untilListed makes passes until the store was listed that often, and nothing of the Jobs is left.
func (w *storeWorld) untilListed(runs int64) {
	w.t.Helper()
	w.until(v1alpha1.ReasonProbed, usable)
	kube.Eventually(w.t, time.Minute, func() error {
		w.pass(usable)
		c := w.store.Status.Catalogue
		if c == nil || c.Runs != runs || c.JobName != "" {
			return fmt.Errorf("catalogue is %+v", c)
		}
		return nil
	})
	w.until(v1alpha1.ReasonProbed, usable)
}

var usable = v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Setup: &v1alpha1.SetupResult{
	Findings: []v1alpha1.Finding{{Check: "Write", Outcome: v1alpha1.FindingOK}}, ChecksumMode: "CRC32C", RepositoryID: "r1", SigningKey: "k1", Writable: true,
}}

// TestAdopt: an empty namespace learns what the bucket holds, once; what a person deletes stays
// deleted until a person asks; what the bucket loses is said.
func TestAdopt(t *testing.T) {
	w := newStoreWorld(t)
	w.store.Spec.Adopt = v1alpha1.AdoptAll
	w.must(w.cluster.Client.Update(t.Context(), w.store))
	a1, a2, b1 := held("a", 1), held("a", 2), held("b", 1)
	w.holding(a1, a2, b1)
	w.untilListed(1)
	want := []string{adoptedAs(a1), adoptedAs(a2), adoptedAs(b1)}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.names()); diff != "" {
		t.Fatalf("adopted (-want +got):\n%s", diff)
	}
	w.checkAdopted(a1)
	w.remove(adoptedAs(a1))
	w.ahead += 25 * time.Hour
	w.holding(a1, a2, held("a", 3), b1)
	w.untilListed(2)
	want = []string{adoptedAs(a2), adoptedAs(held("a", 3)), adoptedAs(b1)}
	slices.Sort(want)
	if diff := cmp.Diff(want, w.names()); diff != "" {
		t.Errorf("what is new is adopted, what was deleted is not (-want +got):\n%s", diff)
	}
	w.store.Annotations = map[string]string{v1alpha1.AnnotationImport: "1"}
	w.must(w.cluster.Client.Update(t.Context(), w.store))
	w.holding(a1, a2, b1) // and the newest was taken away
	w.untilListed(3)
	if !slices.Contains(w.names(), adoptedAs(a1)) || len(w.names()) != 4 {
		t.Errorf("asked to import, it has %v", w.names())
	}
	c := meta.FindStatusCondition(w.store.Status.Conditions, v1alpha1.ConditionCatalogued)
	if c == nil || c.Reason != v1alpha1.ReasonCatalogueIncomplete || !strings.Contains(c.Message, "nothing was deleted here") {
		t.Errorf("a backup that the bucket lost is not said: %+v", c)
	}
	b := w.backup(adoptedAs(held("a", 3)))
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified); c == nil || c.Reason != v1alpha1.ReasonCommitMissing {
		t.Errorf("nor at the backup: %+v", b.Status.Conditions)
	}
}

func adoptedAs(e v1alpha1.CatalogueEntry) string { return store.AdoptedName(&e) }

// checkAdopted: an adopted backup says what it is, and the backups' own controller leaves it alone.
func (w *storeWorld) checkAdopted(e v1alpha1.CatalogueEntry) {
	w.t.Helper()
	b := w.backup(adoptedAs(e))
	ready := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.Reason != v1alpha1.ReasonAdopted {
		w.t.Errorf("adopted backup is %+v", b.Status.Conditions)
	}
	if *b.Status.Export.Commit != e.Commit || b.Status.VM.UID != e.VMUID || b.Status.Origin.VM != "prod/db" || len(b.Status.Volumes) != 2 ||
		b.Status.Summary != (v1alpha1.BackupSummary{Moment: "SingleDisk+Witness", Size: "1.0 GiB", Sent: "4.0 KiB"}) {
		w.t.Errorf("adopted as %+v", b.Status)
	}
	before := b.DeepCopy()
	r := &BackupReconciler{Client: w.cluster.Client, Live: w.cluster.Client, Events: events.NewFakeRecorder(10)}
	_, err := r.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b)})
	w.must(err)
	if diff := cmp.Diff(before, w.backup(b.Name)); diff != "" {
		w.t.Errorf("changed by the backups' controller (-before +after):\n%s", diff)
	}
}

func (w *storeWorld) backup(name string) *v1alpha1.VMStateBackup {
	w.t.Helper()
	b := &v1alpha1.VMStateBackup{}
	w.must(w.cluster.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.store.Namespace, Name: name}, b))
	return b
}

func (w *storeWorld) remove(name string) {
	w.t.Helper()
	w.must(w.cluster.Client.Delete(w.t.Context(), w.backup(name)))
}

// TestImport: a backup that is named by its commit is filled, or told why not.
func TestImport(t *testing.T) {
	w := newStoreWorld(t)
	e := held("a", 1)
	w.holding(e)
	w.until(v1alpha1.ReasonProbed, usable)
	create := func(name string, c v1alpha1.CommitRef) {
		b := &v1alpha1.VMStateBackup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.store.Namespace}}
		b.Spec = v1alpha1.VMStateBackupSpec{VMName: "db", StoreRef: &v1alpha1.ObjectRef{Name: "main"}, Commit: &c}
		w.must(w.cluster.Client.Create(t.Context(), b))
	}
	other := e.Commit
	other.Digest = strings.Repeat("f", 64)
	create("it", e.Commit)
	create("another", other)
	w.ahead = 2 * time.Second // a run counts for what was there before it
	w.untilListed(1)
	if b := w.backup("it"); !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionReady) || b.Status.Export.Commit == nil {
		t.Errorf("not filled: %+v", b.Status)
	}
	if b := w.backup("another"); b.Status.Failure == nil || b.Status.Failure.Reason != v1alpha1.ReasonCommitMissing {
		t.Errorf("a digest that is not in the store was taken: %+v", b.Status)
	}
	if len(w.names()) != 2 {
		t.Errorf("nobody asked to adopt the rest: %v", w.names())
	}
}
