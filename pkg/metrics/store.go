package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

func (m *Metrics) stores() {
	m.succeeded = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "vmstate_store_task_success_timestamp_seconds", Help: "When a store was last listed, cleaned up or read back.",
	}, []string{"namespace", "store", "task"})
	m.failures = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "vmstate_store_task_failures", Help: "Failures of a store's task in a row.",
	}, []string{"namespace", "store", "task"})
	m.damaged = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "vmstate_store_damaged_objects", Help: "Objects of a store that reading it back found damaged; at most 200.",
	}, []string{"namespace", "store"})
}

// Store shows what the status of a store says. A task that never went well has no time.
func (m *Metrics) Store(s *v1alpha1.VMStateStore) {
	if m == nil {
		return
	}
	if c := s.Status.Catalogue; c != nil {
		m.task(s, v1alpha1.TaskCatalogue, c.StoreTaskStatus)
	}
	if c := s.Status.Maintenance; c != nil {
		m.task(s, v1alpha1.TaskMaintain, c.StoreTaskStatus)
	}
	if v := s.Status.Verification; v != nil {
		m.task(s, v1alpha1.TaskVerify, v.StoreTaskStatus)
		m.damaged.WithLabelValues(s.Namespace, s.Name).Set(float64(len(v.Damaged)))
	}
}

func (m *Metrics) task(s *v1alpha1.VMStateStore, task v1alpha1.ReportTask, t v1alpha1.StoreTaskStatus) {
	m.failures.WithLabelValues(s.Namespace, s.Name, string(task)).Set(float64(t.Failures))
	if t.LastSucceededAt != nil {
		m.succeeded.WithLabelValues(s.Namespace, s.Name, string(task)).Set(float64(t.LastSucceededAt.Unix()))
	}
}

// StoreGone forgets a store that does not exist any more.
func (m *Metrics) StoreGone(namespace, name string) {
	if m == nil {
		return
	}
	of := prometheus.Labels{"namespace": namespace, "store": name}
	for _, vec := range []*prometheus.GaugeVec{m.succeeded, m.failures, m.damaged} {
		vec.DeletePartialMatch(of)
	}
}
