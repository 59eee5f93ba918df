package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository"
)

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1<<20 - 1: "1.0 MiB", 10 << 30: "10.0 GiB", 1536 << 20: "1.5 GiB",
		3 << 40: "3.0 TiB", 1 << 60: "1.0 EiB", 1<<63 - 1: "8.0 EiB",
	} {
		if got := size(bytes); got != want {
			t.Errorf("size(%d) = %q, want %q", bytes, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	table(&out, "  ", [][]string{{"VOLUME", "SIZE"}, {"wurzel-ä", "1 B"}, {"b", ""}})
	want := "  VOLUME    SIZE\n  wurzel-ä  1 B\n  b\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("table() mismatch (-want +got):\n%s", diff)
	}
}

// TestBar plays the same way into a log and onto a terminal.
func TestBar(t *testing.T) {
	steps := []struct {
		after time.Duration
		reading
	}{
		{0, reading{step: "Witnessing"}},
		{time.Second, reading{step: "Witnessing"}},
		{time.Second, reading{step: "Exporting", total: 100 << 20}},
		{10 * time.Second, reading{step: "Exporting", done: 5 << 20, total: 100 << 20}},
		{10 * time.Second, reading{step: "Exporting", done: 50 << 20, total: 100 << 20, extra: "sent 9.0 MiB"}},
		{time.Second, reading{step: "Stored", done: 120 << 20, total: 100 << 20}}, // more than was foreseen
	}
	bar25 := func(full int) string { return strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) }
	cases := map[string]struct {
		terminal bool
		columns  int
		want     []string
	}{
		"Log": {want: []string{
			"Witnessing",
			"Exporting         " + bar25(0) + "    0 %  0 B of 100.0 MiB",
			"Exporting         " + bar25(14) + "   50 %  50.0 MiB of 100.0 MiB  sent 9.0 MiB",
			"Stored            " + bar25(28) + "  100 %  100.0 MiB of 100.0 MiB",
			"",
		}},
		"Terminal": {terminal: true, want: []string{strings.Join([]string{"",
			"Witnessing",
			"Witnessing",
			"Exporting         " + bar25(0) + "    0 %  0 B of 100.0 MiB",
			"Exporting         " + bar25(1) + "    5 %  5.0 MiB of 100.0 MiB  512.0 KiB/s  3:10 left",
			"Exporting         " + bar25(14) + "   50 %  50.0 MiB of 100.0 MiB  2.5 MiB/s  0:20 left  sent 9.0 MiB",
			"Stored            " + bar25(28) + "  100 %  100.0 MiB of 100.0 MiB",
		}, "\r\x1b[K"), ""}},
		"NarrowTerminal": {terminal: true, columns: 20, want: []string{strings.Join([]string{"",
			"Witnessing", "Witnessing", "Exporting         ░", "Exporting         █", "Exporting         █", "Stored            █",
		}, "\r\x1b[K"), ""}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			now := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
			b := &bar{out: &out, terminal: tc.terminal, columns: func() int { return tc.columns }, now: func() time.Time { return now }}
			for _, s := range steps {
				now = now.Add(s.after)
				b.show(s.reading)
			}
			b.end()
			b.end() // leaves its line once
			if diff := cmp.Diff(tc.want, strings.Split(out.String(), "\n")); diff != "" {
				t.Errorf("bar (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStateOf: who waits for a mover is told where it stands.
func TestStateOf(t *testing.T) {
	said := func(reason string) string {
		s := stateOf([]metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "3rd of 7 waiting"}})
		return (&bar{}).line(s.reading)
	}
	for reason, want := range map[string]string{
		v1alpha1.ReasonWaitingForMover: "WaitingForMover   3rd of 7 waiting", v1alpha1.ReasonJobPending: "JobPending        3rd of 7 waiting",
		v1alpha1.ReasonExporting: "Exporting", "": "Accepted",
	} {
		if got := said(reason); got != want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

func TestExitCode(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"Usage":        {usagef("no"), exitUsage},
		"Damaged":      {fmt.Errorf("volume: %w", repository.ErrDamaged), exitDamaged},
		"Missing":      {errors.Join(errors.New("a"), repository.ErrMissing), exitDamaged},
		"NotAuthentic": {repository.ErrNotAuthentic, exitDamaged},
		"NoCommit":     {repository.ErrNoCommit, exitNotFound},
		"NoBucket":     {objectstore.ErrNoBucket, exitNotFound},
		"Unreachable":  {objectstore.ErrUnreachable, exitFailed},
		// What could not be found because something is damaged may be the damaged one.
		"NoCommitBesideDamage": {errors.Join(repository.ErrNoCommit, repository.ErrDamaged), exitDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(tc.err); got != tc.want {
				t.Errorf("exitCode(%v) = %d, want %d", tc.err, got, tc.want)
			}
		})
	}
}
