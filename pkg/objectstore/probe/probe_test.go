package probe_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
)

// broken is a store that breaks one rule of the contract.
type broken struct {
	objectstore.Store
	create func(ctx context.Context, key string, body []byte) (objectstore.Info, error)
	list   func(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error]
}

func (b *broken) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if b.create != nil {
		return b.create(ctx, key, body)
	}
	return b.Store.Create(ctx, key, body)
}

func (b *broken) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	if b.list != nil {
		return b.list(ctx, prefix)
	}
	return b.Store.List(ctx, prefix)
}

// overwriting creates though the key is taken.
func overwriting() objectstore.Store {
	inner := memstore.New()
	return &broken{Store: inner, create: func(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
		if err := inner.Delete(ctx, key); err != nil {
			return objectstore.Info{}, err
		}
		return inner.Create(ctx, key, body)
	}}
}

// racy checks for the key and creates in two steps, as a store with two sites does.
func racy() objectstore.Store {
	inner := memstore.New()
	return &broken{Store: inner, create: func(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
		if _, err := inner.Stat(ctx, key); err == nil {
			return objectstore.Info{}, objectstore.ErrExists
		}
		time.Sleep(10 * time.Millisecond)
		_, _ = inner.Create(ctx, key, body)
		return objectstore.Info{Key: key}, nil
	}}
}

func lateList() objectstore.Store {
	return &broken{Store: memstore.New(), list: func(context.Context, string) iter.Seq2[objectstore.Info, error] {
		return func(func(objectstore.Info, error) bool) {}
	}}
}

func faulty(f faultstore.Faults) objectstore.Store {
	return faultstore.New(memstore.New(), f)
}

func failOn(op faultstore.Op, err error) func(faultstore.Call) error {
	return func(c faultstore.Call) error {
		if c.Op == op {
			return err
		}
		return nil
	}
}

func TestRun(t *testing.T) {
	ok := func(checks ...string) []string { return checks }
	for name, tc := range map[string]struct {
		store objectstore.Store
		ok    []string
		notOK map[string]probe.Outcome
		err   error
	}{
		"Sound": {
			store: memstore.New(),
			ok:    ok(probe.CheckConnect, probe.CheckEncrypted, probe.CheckClock, probe.CheckChecksum, probe.CheckConditional, probe.CheckRace, probe.CheckRead, probe.CheckList, probe.CheckDelete),
		},
		"Overwrites": {
			store: overwriting(), err: probe.ErrNoConditionalWrites,
			ok:    ok(probe.CheckConnect, probe.CheckEncrypted, probe.CheckClock, probe.CheckChecksum),
			notOK: map[string]probe.Outcome{probe.CheckConditional: probe.Failed},
		},
		"TwoSites": {
			store: racy(), err: probe.ErrNoConditionalWrites,
			ok:    ok(probe.CheckConnect, probe.CheckEncrypted, probe.CheckClock, probe.CheckChecksum, probe.CheckConditional),
			notOK: map[string]probe.Outcome{probe.CheckRace: probe.Failed},
		},
		"AltersWhatItKeeps": {
			store: faulty(faultstore.Faults{Alter: func(_ faultstore.Call, b []byte) []byte { b[len(b)/2] ^= 1; return b }}),
			err:   objectstore.ErrCorrupted,
			ok:    ok(probe.CheckConnect, probe.CheckEncrypted, probe.CheckClock, probe.CheckChecksum, probe.CheckConditional, probe.CheckRace),
			notOK: map[string]probe.Outcome{probe.CheckRead: probe.Failed},
		},
		"ListsLate": {
			store: lateList(), err: errAny,
			ok:    ok(probe.CheckConnect, probe.CheckEncrypted, probe.CheckClock, probe.CheckChecksum, probe.CheckConditional, probe.CheckRace, probe.CheckRead),
			notOK: map[string]probe.Outcome{probe.CheckList: probe.Failed},
		},
		"MayNotDelete": {
			store: faulty(faultstore.Faults{Before: failOn(faultstore.Delete, objectstore.ErrDenied)}),
			ok:    ok(probe.CheckConnect, probe.CheckEncrypted, probe.CheckClock, probe.CheckChecksum, probe.CheckConditional, probe.CheckRace, probe.CheckRead, probe.CheckList),
			notOK: map[string]probe.Outcome{probe.CheckDelete: probe.Warning},
		},
		"MayNotWrite": {
			store: faulty(faultstore.Faults{Before: failOn(faultstore.Create, objectstore.ErrDenied)}), err: objectstore.ErrDenied,
			ok:    ok(probe.CheckConnect, probe.CheckEncrypted, probe.CheckClock, probe.CheckChecksum),
			notOK: map[string]probe.Outcome{probe.CheckConditional: probe.Failed},
		},
		"Gone": {
			store: faulty(faultstore.Faults{Before: faultstore.FailFrom(1, objectstore.ErrUnreachable)}), err: objectstore.ErrUnreachable,
			notOK: map[string]probe.Outcome{probe.CheckConnect: probe.Failed},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := probe.Run(t.Context(), probe.Plain(tc.store, "the test"))
			var fine []string
			notOK := map[string]probe.Outcome{}
			for _, f := range got.Findings {
				if f.Outcome == probe.OK {
					fine = append(fine, f.Check)
				} else {
					notOK[f.Check] = f.Outcome
				}
			}
			if tc.notOK == nil {
				tc.notOK = map[string]probe.Outcome{}
			}
			if diff := cmp.Diff(tc.ok, fine); diff != "" {
				t.Errorf("checks that are OK mismatch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.notOK, notOK); diff != "" {
				t.Errorf("checks that are not OK mismatch (-want +got):\n%s", diff)
			}
			if errors.Is(tc.err, errAny) && got.Err != nil {
				return
			}
			if !errors.Is(got.Err, tc.err) {
				t.Errorf("error: got %v, want %v", got.Err, tc.err)
			}
		})
	}
}

// errAny stands for an error of no particular kind.
var errAny = errors.New("any error")

// modal is a target whose store takes some checksum modes and verifies some.
type modal struct {
	probe.Target
	takes, verifies map[string]bool
}

func (m *modal) Modes() []string { return []string{"best", "good", "none"} }

func (m *modal) Open(mode string) (objectstore.Store, error) {
	s, err := m.Target.Open(mode)
	if m.takes[mode] {
		return s, err
	}
	return faultstore.New(s, faultstore.Faults{Before: failOn(faultstore.Create, objectstore.ErrCorrupted)}), err
}

func (m *modal) Verifies(_ context.Context, mode, _ string) (bool, error) {
	return m.verifies[mode], nil
}

func TestChecksumMode(t *testing.T) {
	all := map[string]bool{"best": true, "good": true, "none": true}
	for name, tc := range map[string]struct {
		takes, verifies map[string]bool
		want            string
		outcome         probe.Outcome
	}{
		"TakesAndVerifiesAll": {all, map[string]bool{"best": true, "good": true}, "best", probe.OK},
		"RefusesBest":         {map[string]bool{"good": true, "none": true}, map[string]bool{"good": true}, "good", probe.OK},
		"DoesNotVerifyBest":   {all, map[string]bool{"good": true}, "good", probe.OK},
		"VerifiesNothing":     {all, nil, "none", probe.Warning},
		"TakesNothing":        {nil, nil, "", probe.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			got := probe.Run(t.Context(), &modal{probe.Plain(memstore.New(), "the test"), tc.takes, tc.verifies})
			if got.Checksum != tc.want {
				t.Errorf("mode: got %q, want %q; %s", got.Checksum, tc.want, got.Summary())
			}
			for _, f := range got.Findings {
				if f.Check == probe.CheckChecksum && f.Outcome != tc.outcome {
					t.Errorf("finding: got %+v, want outcome %s", f, tc.outcome)
				}
			}
		})
	}
}
