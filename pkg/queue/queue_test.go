package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// turn is a mover of a kind (by its first letter and a number), waiting for so many minutes.
func turn(name string, minutes int) v1alpha1.MoverTurn {
	kind := map[byte]v1alpha1.MoverKind{
		'r': v1alpha1.MoverRestore, 'b': v1alpha1.MoverBackup, 'm': v1alpha1.MoverMaintenance, 'v': v1alpha1.MoverVerification,
	}[name[0]]
	return v1alpha1.MoverTurn{Kind: kind, Name: name, UID: types.UID(name), Since: metav1.NewTime(noon.Add(-time.Duration(minutes) * time.Minute))}
}

func candidates(turns ...v1alpha1.MoverTurn) (out []Candidate) {
	for _, t := range turns {
		out = append(out, Candidate{MoverTurn: t})
	}
	return out
}

func names(turns []v1alpha1.MoverTurn) string {
	var out []string
	for _, t := range turns {
		out = append(out, t.Name)
	}
	return strings.Join(out, " ")
}

func movers(turns ...v1alpha1.MoverTurn) (out []Mover) {
	for _, t := range turns {
		out = append(out, Mover{MoverTurn: t})
	}
	return out
}

func TestPlan(t *testing.T) {
	begun := candidates(turn("m1", 1))
	begun[0].Begun = true
	for name, tc := range map[string]struct {
		reason           string
		limit            int32
		recorded         []v1alpha1.MoverTurn
		candidates       []Candidate
		movers           []Mover
		working, waiting string
	}{
		"Nobody":   {"", 3, nil, nil, nil, "", ""},
		"Room":     {"all have room", 3, nil, candidates(turn("b1", 1), turn("b2", 2)), nil, "b2 b1", ""},
		"Full":     {"", 1, nil, candidates(turn("b2", 2)), movers(turn("b1", 5)), "b1", "b2"},
		"Oldest":   {"what has waited longest goes first", 1, nil, candidates(turn("b1", 1), turn("b3", 3), turn("b2", 2)), nil, "b3", "b2 b1"},
		"SameTime": {"a tie has an order that stays", 1, nil, candidates(turn("b2", 1), turn("b1", 1)), nil, "b1", "b2"},
		"Kinds": {"somebody waits for a restore", 1, nil,
			candidates(turn("v1", 600), turn("m1", 500), turn("b1", 400), turn("r1", 1)), movers(turn("b9", 700)), "b9", "r1 b1 v1 m1"},
		"Overdue": {"locks would lapse", 1, nil,
			candidates(turn("m1", 24*60), turn("b1", 25*60), turn("r1", 1)), movers(turn("b9", 1)), "b9", "r1 m1 b1"},
		"LetIn": {"a turn is not taken back, whoever comes", 1, []v1alpha1.MoverTurn{turn("b1", 1)},
			candidates(turn("b1", 1), turn("r1", 2)), nil, "b1", "r1"},
		"LetInRuns": {"one that is let in and has its Job is one mover", 2, []v1alpha1.MoverTurn{turn("b1", 1)},
			candidates(turn("b1", 1), turn("b2", 1), turn("b3", 1)), movers(turn("b1", 1)), "b1 b2", "b3"},
		"LetInGone":     {"what is not there any more gives its turn back", 1, []v1alpha1.MoverTurn{turn("b1", 1)}, candidates(turn("b2", 1)), nil, "b2", ""},
		"Unrecorded":    {"a mover that nobody let in counts", 1, nil, candidates(turn("b2", 1)), movers(turn("b1", 1)), "b1", "b2"},
		"Begun":         {"a chore that has begun is not kept back", 1, nil, append(begun, candidates(turn("b2", 1))...), movers(turn("b1", 5)), "b1 m1", "b2"},
		"Lowered":       {"those at work go on", 1, []v1alpha1.MoverTurn{turn("b1", 3), turn("b2", 2)}, candidates(turn("b2", 2), turn("b3", 1)), movers(turn("b1", 3)), "b1 b2", "b3"},
		"NodeLimitOnly": {"without a limit of the store all go", 0, nil, candidates(turn("b1", 1), turn("b2", 2)), nil, "b2 b1", ""},
		"SameObjectOtherKind": {"maintenance and verification of one store are two", 1, nil, func() []Candidate {
			v := turn("v1", 1)
			v.UID = "m1"
			return candidates(v)
		}(), movers(turn("m1", 1)), "m1", "v1"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Observed{Now: noon, Limits: &v1alpha1.StoreLimits{Movers: tc.limit, MoversPerNode: 1}, Candidates: tc.candidates, Movers: tc.movers}
			if tc.recorded != nil {
				in.Recorded = &v1alpha1.MoversStatus{Working: tc.recorded}
			}
			m, again := Plan(in)
			if names(m.Working) != tc.working || names(m.Waiting) != tc.waiting || again != 0 || int(m.WaitingCount) != len(m.Waiting) {
				t.Errorf("%s: working %q, waiting %q of %d, again in %s; want %q, %q", tc.reason, names(m.Working), names(m.Waiting), m.WaitingCount, again, tc.working, tc.waiting)
			}
		})
	}
}

// TestPace: who may begin is recorded at once; who only has another place, with what else has changed, every few seconds.
func TestPace(t *testing.T) {
	in := Observed{Now: noon, Limits: &v1alpha1.StoreLimits{Movers: 1}, Candidates: candidates(turn("b2", 2), turn("b3", 1)), Movers: movers(turn("b1", 9))}
	in.Recorded, _ = Plan(in)
	in.Now = noon.Add(time.Second)
	if m, again := Plan(in); m != in.Recorded || again != 0 {
		t.Errorf("nothing has changed, and %+v is recorded anew, again in %s", m, again)
	}
	in.Candidates = append(in.Candidates, candidates(turn("b4", 0))...)
	if m, again := Plan(in); m != in.Recorded || again != 2*time.Second {
		t.Errorf("after a second: %q waiting, again in %s", names(m.Waiting), again)
	}
	in.Now = noon.Add(pace)
	if m, again := Plan(in); names(m.Waiting) != "b2 b3 b4" || again != 0 {
		t.Errorf("after %s: %q waiting, again in %s", pace, names(m.Waiting), again)
	}
	in.Now, in.Movers = noon.Add(time.Second), nil
	if m, _ := Plan(in); names(m.Working) != "b2" || names(m.Waiting) != "b3 b4" {
		t.Errorf("a mover has ended: working %q, waiting %q", names(m.Working), names(m.Waiting))
	}
}

// TestMany: a long queue is listed in part, what the store waits for itself always, and its length is told.
func TestMany(t *testing.T) {
	in := Observed{Now: noon, Limits: &v1alpha1.StoreLimits{Movers: 1}, Movers: movers(turn("b-first", 9)), Candidates: candidates(turn("m1", 3))}
	for i := range 5000 {
		in.Candidates = append(in.Candidates, Candidate{MoverTurn: turn(fmt.Sprintf("b%04d", i), 2)})
	}
	m, _ := Plan(in)
	if len(m.Waiting) != maxListed+1 || m.Waiting[maxListed].Name != "m1" || m.WaitingCount != 5001 {
		t.Errorf("%d of %d are listed, the last is %q", len(m.Waiting), m.WaitingCount, m.Waiting[len(m.Waiting)-1].Name)
	}
	s := &v1alpha1.VMStateStore{ObjectMeta: metav1.ObjectMeta{Name: "main"}, Status: v1alpha1.VMStateStoreStatus{Movers: m}}
	for uid, want := range map[types.UID]string{
		"b0000": `1st of 5001 waiting for a mover of store "main"`, "b0002": `3rd of 5001 waiting for a mover of store "main"`,
		"b0011": `12th of 5001 waiting for a mover of store "main"`, "b0021": `22nd of 5001 waiting for a mover of store "main"`,
		"b4000": `behind 100 of 5001 waiting for a mover of store "main"`,
	} {
		if got := Place(s, v1alpha1.MoverBackup, uid); got != want {
			t.Errorf("%s: %q, want %q", uid, got, want)
		}
	}
	s.Status.Movers = nil
	if got := Place(s, v1alpha1.MoverBackup, "b1"); got != `waiting for a mover of store "main"` {
		t.Errorf("before the store has seen it: %q", got)
	}
}

// TestSlots: movers of one node, or of a node that is not known, get other slots while there are any; of several nodes they share.
func TestSlots(t *testing.T) {
	on := func(name, node string) Candidate { return Candidate{MoverTurn: turn(name, 1), Node: node} }
	for name, tc := range map[string]struct {
		candidates []Candidate
		want       string
	}{
		"OneNode":  {[]Candidate{on("b1", "a"), on("b2", "a"), on("b3", "a"), on("b4", "a")}, "1 2 1 2"},
		"TwoNodes": {[]Candidate{on("b1", "a"), on("b2", "b"), on("b3", "a"), on("b4", "b")}, "1 2 2 1"},
		"Unknown":  {[]Candidate{on("r1", ""), on("r2", ""), on("r3", "")}, "1 2 1"},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := Plan(Observed{Now: noon, Limits: &v1alpha1.StoreLimits{MoversPerNode: 2}, Candidates: tc.candidates})
			var got []string
			for _, w := range m.Working {
				got = append(got, fmt.Sprint(w.Slot))
			}
			if strings.Join(got, " ") != tc.want {
				t.Errorf("slots %q, want %q", got, tc.want)
			}
		})
	}
	if m, _ := Plan(Observed{Now: noon, Limits: &v1alpha1.StoreLimits{Movers: 2}, Candidates: candidates(turn("b1", 1))}); m.Working[0].Slot != 0 {
		t.Errorf("slot %d without a limit of nodes", m.Working[0].Slot)
	}
}

// TestNeverMore lets movers come and go at random, with Jobs that appear late, and asks two deciders with the same record: only
// one write of a status is taken. The limit always holds, everybody gets a turn, and nobody loses one.
func TestNeverMore(t *testing.T) {
	const limit, of = 3, 200
	seed := uint32(1)
	random := func(n int) int {
		seed = seed*1664525 + 1013904223
		return int(seed>>8) % n
	}
	limits := &v1alpha1.StoreLimits{Movers: limit, MoversPerNode: 2}
	waiting, jobs, done := map[string]bool{}, map[string]bool{}, 0
	var recorded *v1alpha1.MoversStatus
	next, most := 0, 0
	for step := 0; done < of; step++ {
		if step > 100*of {
			t.Fatalf("after %d steps %d of %d are done", step, done, of)
		}
		if next < of && random(2) == 0 {
			waiting[fmt.Sprintf("b%03d", next)] = true
			next++
		}
		in := Observed{Now: noon.Add(time.Duration(step) * time.Second), Limits: limits, Recorded: recorded}
		for name := range waiting {
			in.Candidates = append(in.Candidates, candidates(turn(name, 1))...)
		}
		for name := range jobs {
			in.Movers = append(in.Movers, movers(turn(name, 1))...)
		}
		before := recorded
		recorded, _ = Plan(in)
		if before != nil {
			for _, w := range before.Working {
				if waiting[w.Name] && find(recorded.Working, w.Kind, w.UID) == nil {
					t.Fatalf("step %d: %s was let in, and is not any more", step, w.Name)
				}
			}
		}
		for _, w := range recorded.Working { // who was let in makes its Job sooner or later, then does not wait any more
			if waiting[w.Name] && random(3) == 0 {
				jobs[w.Name] = true
			}
			if jobs[w.Name] && random(2) == 0 {
				delete(waiting, w.Name)
			}
		}
		if most = max(most, len(jobs)); len(jobs) > limit {
			t.Fatalf("step %d: %d Jobs", step, len(jobs))
		}
		for name := range jobs {
			if !waiting[name] && random(4) == 0 {
				delete(jobs, name)
				done++
			}
		}
	}
	if most != limit {
		t.Errorf("at most %d Jobs at a time, %d may be", most, limit)
	}
}
