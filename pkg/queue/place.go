package queue

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Place says in words where somebody stands who waits.
func Place(s *v1alpha1.VMStateStore, kind v1alpha1.MoverKind, uid types.UID) string {
	m := s.Status.Movers
	if m == nil || len(m.Waiting) == 0 {
		return fmt.Sprintf("waiting for a mover of store %q", s.Name)
	}
	for i, t := range m.Waiting {
		if t.Kind == kind && t.UID == uid {
			return fmt.Sprintf("%s of %d waiting for a mover of store %q", ordinal(i+1), m.WaitingCount, s.Name)
		}
	}
	if int(m.WaitingCount) > len(m.Waiting) {
		return fmt.Sprintf("behind %d of %d waiting for a mover of store %q", maxListed, m.WaitingCount, s.Name)
	}
	return fmt.Sprintf("waiting for a mover of store %q", s.Name)
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
