// Package metrics holds every metric of the manager.
//
//	vmstate_backups_total{reason}             backups that ended, by the reason of Ready
//	vmstate_backup_attempts                   attempts that a bound moment needed
//	vmstate_backup_window_seconds             between the two readings of the firmware state
//	vmstate_backup_frozen_seconds             from the request to freeze until the release
//	vmstate_backup_paused_seconds             from the request to pause until the release, of every pause that was seen
//	vmstate_backup_sent_bytes_total           bytes sent to stores
//	vmstate_store_task_success_timestamp_seconds{namespace,store,task}
//	                                          when a store was last listed, cleaned up or read back whole
//	vmstate_store_task_failures{namespace,store,task}
//	                                          failures of that task in a row
//	vmstate_store_damaged_objects{namespace,store}
//	                                          objects that reading back found damaged, at most 200
//	vmstate_leftovers{namespace,kind}         snapshots and claims of backups that are gone, which nothing removes
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Metrics of one manager. A nil Metrics counts nothing.
type Metrics struct {
	backups  *prometheus.CounterVec
	attempts prometheus.Histogram
	window   prometheus.Histogram
	frozen   prometheus.Histogram
	paused   prometheus.Histogram
	sent     prometheus.Counter

	succeeded, failures, damaged *prometheus.GaugeVec
	leftovers                    *prometheus.GaugeVec
}

// New makes the metrics and registers them.
func New(registry prometheus.Registerer) *Metrics {
	seconds := []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30}
	m := &Metrics{
		backups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vmstate_backups_total", Help: "Backups that ended, by the reason of Ready.",
		}, []string{"reason"}),
		attempts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vmstate_backup_attempts", Help: "Attempts that a bound moment needed.", Buckets: []float64{1, 2, 3, 4, 5},
		}),
		window: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vmstate_backup_window_seconds", Help: "Between the two readings of the firmware state.", Buckets: seconds,
		}),
		frozen: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vmstate_backup_frozen_seconds", Help: "From the request to freeze until the release.", Buckets: seconds,
		}),
		paused: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "vmstate_backup_paused_seconds", Help: "From the request to pause until the release.", Buckets: seconds,
		}),
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "vmstate_backup_sent_bytes_total", Help: "Bytes sent to stores, after compression and encryption.",
		}),
	}
	m.stores()
	m.leftovers = newLeftovers()
	registry.MustRegister(m.backups, m.attempts, m.window, m.frozen, m.paused, m.sent, m.succeeded, m.failures, m.damaged, m.leftovers)
	return m
}

// Backup counts what a written status says for the first time.
func (m *Metrics) Backup(before, after *v1alpha1.VMStateBackup) {
	if m == nil {
		return
	}
	if moment := after.Status.Moment; moment != nil && before.Status.Moment == nil {
		m.attempts.Observe(float64(moment.Attempts))
		if moment.State == v1alpha1.StateWitness {
			m.window.Observe(float64(moment.WindowMilliseconds) / 1000)
		}
		if moment.FrozenMilliseconds > 0 {
			m.frozen.Observe(float64(moment.FrozenMilliseconds) / 1000)
		}
	}
	m.pauses(before, after)
	if after.Status.CompletedAt == nil || before.Status.CompletedAt != nil {
		return
	}
	if c := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		m.backups.WithLabelValues(c.Reason).Inc()
	}
	if e := after.Status.Export; e != nil && e.Commit != nil {
		m.sent.Add(float64(e.SentBytes))
	}
}

// pauses counts those that have ended, of attempts that came to nothing too: each was one for the guest.
func (m *Metrics) pauses(before, after *v1alpha1.VMStateBackup) {
	for i, a := range after.Status.Attempts {
		ended := func(f *v1alpha1.FenceRecord) bool {
			return f != nil && !f.OwnersPause && f.PausedAt != nil && f.ReleasedAt != nil
		}
		if ended(a.Fence) && (i >= len(before.Status.Attempts) || !ended(before.Status.Attempts[i].Fence)) {
			m.paused.Observe(a.Fence.ReleasedAt.Sub(a.Fence.RequestedAt.Time).Seconds())
		}
	}
}
