package faultstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

func TestStore(t *testing.T) {
	plain := func() *faultstore.Store { return faultstore.New(memstore.New(), faultstore.Faults{}) }
	storetest.Run(t, func(*testing.T) objectstore.Store { return plain() })
	storetest.RunOneVersion(t, func(*testing.T) objectstore.Versioned { return plain() })
}

func TestVersioned(t *testing.T) {
	storetest.RunVersions(t, func(*testing.T) storetest.Overwritable {
		return faultstore.New(memstore.NewVersioned(time.Now, nil), faultstore.Faults{})
	})
	storetest.RunLock(t, func(*testing.T) objectstore.Locker {
		return faultstore.New(memstore.NewVersioned(time.Now, nil), faultstore.Faults{})
	})
}

func TestFaults(t *testing.T) {
	gone := errors.New("gone")
	inner := memstore.New()
	s := faultstore.New(inner, faultstore.Faults{Before: faultstore.FailAt(1, gone)})
	if _, err := s.Create(t.Context(), "a", []byte("abc")); !errors.Is(err, gone) {
		t.Fatalf("Create with a fault before it: got %v", err)
	}
	if _, err := inner.Stat(t.Context(), "a"); !errors.Is(err, objectstore.ErrNotFound) {
		t.Fatalf("after it: got %v, want ErrNotFound", err)
	}
	s.Set(faultstore.Faults{After: faultstore.FailFrom(2, gone)})
	if _, err := s.Create(t.Context(), "a", []byte("abc")); !errors.Is(err, gone) {
		t.Fatalf("Create whose answer is lost: got %v", err)
	}
	if _, err := inner.Stat(t.Context(), "a"); err != nil {
		t.Fatalf("after it: %v", err)
	}
	s.Set(faultstore.Faults{Alter: func(_ faultstore.Call, b []byte) []byte { return b[:len(b)-1] }})
	if _, err := objectstore.GetRange(t.Context(), s, "a", 0, 3); !errors.Is(err, objectstore.ErrShort) {
		t.Errorf("an object that was cut: got %v, want ErrShort", err)
	}
	want := []faultstore.Call{
		{N: 1, Op: faultstore.Create, Key: "a", Length: 3},
		{N: 2, Op: faultstore.Create, Key: "a", Length: 3},
		{N: 3, Op: faultstore.Open, Key: "a", Length: 3},
	}
	if diff := cmp.Diff(want, s.Calls()); diff != "" {
		t.Errorf("Calls() mismatch (-want +got):\n%s", diff)
	}
}
