package metrics

import "github.com/prometheus/client_golang/prometheus"

// Leftover is what is counted together of what is left over.
type Leftover struct{ Namespace, Kind string }

func newLeftovers() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "vmstate_leftovers", Help: "Snapshots and claims of backups that are gone, which nothing removes.",
	}, []string{"namespace", "kind"})
}

// Leftovers shows what was found, in the place of what was found before.
func (m *Metrics) Leftovers(count map[Leftover]int) {
	if m == nil {
		return
	}
	m.leftovers.Reset()
	for l, n := range count {
		m.leftovers.WithLabelValues(l.Namespace, l.Kind).Set(float64(n))
	}
}
