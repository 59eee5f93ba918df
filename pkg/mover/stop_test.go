package mover

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/faultstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
	"github.com/vmstate/vmstate/pkg/repository"
)

// sent counts the bytes of the packs that were created, and forgets them.
func sent(s *faultstore.Store) (n int64) {
	for _, c := range s.Calls() {
		if c.Op == faultstore.Create {
			n += c.Length
		}
	}
	return n
}

// TestExportStopped: an export that is told to stop keeps what it has sent; the next one sends the rest, and the backup is whole.
// One that is killed at the same place sends everything again, which shows that the stop is what keeps it.
func TestExportStopped(t *testing.T) {
	const size = 80 << 20               // two packs and a half
	content := storetest.Bytes(5, size) // nothing of it can be made smaller
	for name, stop := range map[string]bool{"Told": true, "Killed": false} {
		t.Run(name, func(t *testing.T) {
			store := faultstore.New(memstore.New(), faultstore.Faults{})
			p := newPod(t, store)
			task, _ := p.exportTask(t, p.set(t))
			task.Disks = []config.Disk{{Name: "big", Mode: config.Filesystem}}
			write(t, p.Paths.Volumes+"/big/"+imageName, content)
			end := make(chan struct{})
			ended := false
			p.Progress = func(now Progress) {
				if ended || now.Read < size*6/10 {
					return
				}
				ended = true
				if stop {
					close(end)
				} else {
					store.Set(faultstore.Faults{Before: func(faultstore.Call) error { return objectstore.ErrUnreachable }})
				}
			}
			p.Stop = end
			sent(store)
			_, err := Export(t.Context(), p.Env, task)
			if want := map[bool]error{true: repository.ErrStopped, false: objectstore.ErrUnreachable}[stop]; !errors.Is(err, want) || Final(err) {
				t.Fatalf("stopped export: %v", err)
			}
			store.Set(faultstore.Faults{})
			first := sent(store)
			p.Stop, p.Progress = nil, nil
			done, err := Export(t.Context(), p.Env, task)
			if err != nil {
				t.Fatal(err)
			}
			again := first + sent(store) - size
			t.Logf("%d bytes before the stop, %d more than the disk in all", first, again)
			if stop && (first < size/2 || again > 1<<20) || !stop && again < 30<<20 {
				t.Errorf("%d bytes were sent before the stop, and %d twice", first, again)
			}
			p.clear(t, task.Disks)
			if _, err := Import(t.Context(), p.Env, config.Import{Commit: &config.Commit{Key: done.Key, Digest: done.Digest}, Disks: task.Disks}, nil); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(p.Paths.Volumes + "/big/" + imageName); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes came back, and not those that were there: %v", len(got), err)
			}
		})
	}
}
