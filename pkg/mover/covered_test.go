package mover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
)

// TestImportCovered: what somebody put over the objects of a backup is seen through, and told with the name of one.
func TestImportCovered(t *testing.T) {
	s := memstore.NewVersioned(time.Now, nil)
	p, done, task := backedUpOn(t, s)
	var notes []string
	p.Note = func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if _, err := Import(t.Context(), p.Env, task, nil); err != nil || len(notes) > 0 {
		t.Fatalf("import: %v, %q", err, notes)
	}
	if _, err := s.Replace(t.Context(), done.Key, []byte("junk")); err != nil {
		t.Fatal(err)
	}
	p.clear(t, task.Disks)
	if _, err := Import(t.Context(), p.Env, task, nil); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "(1)") || !strings.Contains(notes[0], done.Key) {
		t.Errorf("told: %q", notes)
	}
}
