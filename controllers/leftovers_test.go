package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/metrics"
	"github.com/vmstate/vmstate/test/kube"
)

// TestLeftovers: a snapshot that kubectl delete --cascade=orphan has left behind is told of, and stays; one whose backup
// is there is not.
func TestLeftovers(t *testing.T) {
	cluster := kube.Shared(t)
	namespace := cluster.Namespace(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	class := "none"
	made := map[string]*snapshotv1.VolumeSnapshot{}
	backups := map[string]*v1alpha1.VMStateBackup{}
	for _, name := range []string{"stays", "goes"} {
		b := &v1alpha1.VMStateBackup{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: v1alpha1.VMStateBackupSpec{VMName: "db"}}
		must(cluster.Client.Create(t.Context(), b))
		claim, yes := "disk", true
		s := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{
				Name: job.Name(b.UID, "snap-1-0"), Namespace: namespace,
				Labels:          map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelOwnerUID: string(b.UID)},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VMStateBackup", Name: b.Name, UID: b.UID, Controller: &yes}},
			},
			Spec: snapshotv1.VolumeSnapshotSpec{VolumeSnapshotClassName: &class, Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}},
		}
		must(cluster.Client.Create(t.Context(), s))
		made[name], backups[name] = s, b
	}
	recorder := events.NewFakeRecorder(100)
	registry := prometheus.NewRegistry()
	l := &Leftovers{
		Client: cluster.Client, Live: cluster.Client, Events: recorder, Metrics: metrics.New(registry),
		Now: func() time.Time { return time.Now().Add(time.Hour) },
	}
	told := func() string {
		t.Helper()
		must(l.look(t.Context()))
		families, err := registry.Gather()
		must(err)
		out := ""
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "vmstate_leftovers" && strings.Contains(fmt.Sprint(m.GetLabel()), namespace) {
					out += fmt.Sprintf("%s %g", m.GetLabel()[0].GetValue(), m.GetGauge().GetValue())
				}
			}
		}
		return out
	}
	if got := told(); got != "" {
		t.Errorf("both backups are there, and %s is left over", got)
	}
	must(cluster.Client.Delete(t.Context(), backups["goes"], client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	kube.Eventually(t, time.Minute, func() error {
		if got := told(); got != "VolumeSnapshot 1" {
			return fmt.Errorf("left over: %q", got)
		}
		return nil
	})
	select {
	case e := <-recorder.Events:
		if !strings.Contains(e, "LeftOver") {
			t.Errorf("event %q", e)
		}
	default:
		t.Error("no event")
	}
	for name, s := range made {
		must(cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(s), s))
		if s.DeletionTimestamp != nil {
			t.Errorf("snapshot of %q is being deleted", name)
		}
	}
}
