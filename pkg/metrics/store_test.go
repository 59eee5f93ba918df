package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// TestStore: what a store's status says is shown, and goes with the store.
func TestStore(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := New(registry)
	at := metav1.NewTime(time.Unix(1764547200, 0))
	s := &v1alpha1.VMStateStore{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "main"}}
	s.Status.Maintenance = &v1alpha1.MaintenanceStatus{StoreTaskStatus: v1alpha1.StoreTaskStatus{Failures: 2}}
	s.Status.Verification = &v1alpha1.VerificationStatus{
		StoreTaskStatus: v1alpha1.StoreTaskStatus{LastSucceededAt: &at}, Damaged: []v1alpha1.CatalogueFault{{Key: "r/x"}},
	}
	m.Store(s)
	other := s.DeepCopy()
	other.Name = "second"
	m.Store(other)
	m.StoreGone("prod", "second")
	(*Metrics)(nil).Store(s)
	want := map[string]float64{
		"vmstate_store_task_failures/Maintain": 2, "vmstate_store_task_failures/Verify": 0,
		"vmstate_store_task_success_timestamp_seconds/Verify": 1764547200, "vmstate_store_damaged_objects/": 1,
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, g := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range g.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			key := f.GetName() + "/" + labels["task"]
			value, wanted := want[key]
			switch {
			case labels["store"] == "": // of backups
			case !wanted || g.GetGauge().GetValue() != value || labels["store"] != "main" || labels["namespace"] != "prod":
				t.Errorf("%s of %v is %v", key, labels, g.GetGauge().GetValue())
			}
			delete(want, key)
		}
	}
	if len(want) > 0 {
		t.Errorf("not shown: %v", want)
	}
}
