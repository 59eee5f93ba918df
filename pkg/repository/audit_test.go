package repository_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/vmstate/vmstate/pkg/repository"
)

// A parent whose index is damaged says nothing of the driver: an audit of an unchanged disk accuses nobody.
func TestAuditOnBrokenParent(t *testing.T) {
	first, _ := chainOfTwo(5 << 18)
	w := newWorld(t, nil)
	one := w.backup("one", nil, first)
	objects := contents(t, w.store)
	runs := 0
	for key := range objects {
		if kindOf(key) != "index pack" {
			continue
		}
		for i, m := range mutations(key, objects) {
			w.mutate(key, m, objects)
			var err error
			w.writer, err = repository.OpenWithKeys(t.Context(), w.store, w.keys)
			must(t, err)
			v, _ := hinted{disk: first.disks[0], since: one, audit: true}.volume()
			v.LogicalBlockSize = 512
			two, err := w.tryTold(fmt.Sprint("two", i, key[len(key)-8:]), one, v)
			if errors.Is(err, repository.ErrParent) {
				continue
			}
			must(t, err)
			runs++
			if r := two.Volumes[0].Reading; r.Way != repository.WayAudited || r.UntoldBytes != 0 {
				t.Errorf("%s of %q: %+v", m.name, key, r)
			}
		}
	}
	if runs == 0 {
		t.Error("every run ended with ErrParent: this test looks at nothing")
	}
}
