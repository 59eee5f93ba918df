package metrics

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Each pause is counted once, when it has ended: also one that came to nothing, and no owner's.
func TestPauses(t *testing.T) {
	at := func(d time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Unix(1000, 0).Add(d)} }
	fence := func(released *metav1.MicroTime, owners bool) v1alpha1.MomentAttempt {
		return v1alpha1.MomentAttempt{Fence: &v1alpha1.FenceRecord{RequestedAt: *at(0), PausedAt: at(time.Second), ReleasedAt: released, OwnersPause: owners}}
	}
	seen := func(attempts ...v1alpha1.MomentAttempt) *v1alpha1.VMStateBackup {
		return &v1alpha1.VMStateBackup{Status: v1alpha1.VMStateBackupStatus{Attempts: attempts}}
	}
	registry := prometheus.NewRegistry()
	m := New(registry)
	over, under := fence(at(1500*time.Millisecond), false), fence(nil, false)
	steps := []*v1alpha1.VMStateBackup{
		seen(), seen(under), seen(over), seen(over, under), seen(over, over), seen(over, over), seen(over, over, fence(at(time.Hour), true)),
	}
	for i := 1; i < len(steps); i++ {
		m.Backup(steps[i-1], steps[i])
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "vmstate_backup_paused_seconds" {
			continue
		}
		if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 3 {
			t.Errorf("%d pauses of %v s, want 2 of 3 s", h.GetSampleCount(), h.GetSampleSum())
		}
		return
	}
	t.Error("no pauses")
}
