package mover

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/pkg/changedblocks"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// driver is what a driver's service answers, and what it was asked.
type driver struct {
	changed, allocated       []repository.Extent
	noChanges, noAllocations error
	asked                    []string
}

func (d *driver) Changed(_ context.Context, of changedblocks.Snapshot, base string, size int64) (iter.Seq2[repository.Extent, error], error) {
	d.asked = append(d.asked, fmt.Sprintf("changes of %s/%s since %s, %d bytes", of.Namespace, of.Name, base, size))
	return extents(d.changed), d.noChanges
}

func (d *driver) Allocated(_ context.Context, of changedblocks.Snapshot, size int64) (iter.Seq2[repository.Extent, error], error) {
	d.asked = append(d.asked, fmt.Sprintf("allocation of %s/%s, %d bytes", of.Namespace, of.Name, size))
	return extents(d.allocated), d.noAllocations
}

func (d *driver) Close() error { return nil }

func extents(list []repository.Extent) iter.Seq2[repository.Extent, error] {
	return func(yield func(repository.Extent, error) bool) {
		for _, e := range list {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// What the storage is asked, what is read then, and what the record says of it.
func TestTrack(t *testing.T) {
	const mib, unit = 1 << 20, 16 << 10
	changes := fmt.Sprintf("changes of prod/snap-2 since handle-1, %d bytes", diskBytes)
	allocation := fmt.Sprintf("allocation of prod/snap-2, %d bytes", diskBytes)
	one := []repository.Extent{{Offset: 3 * mib, Length: 4096}}
	whole := []repository.Extent{{Length: diskBytes}}
	unsupported := fmt.Errorf("%w: no changed block tracking", changedblocks.ErrRefused)
	early := fmt.Errorf("%w behind byte 4096: the stream ended", changedblocks.ErrIncomplete)
	for name, tc := range map[string]struct {
		reason string
		driver driver
		change func(*config.Export)
		asked  []string
		want   repository.Reading
		read   int64
	}{
		"Changes": {
			reason: "only what has changed is read", driver: driver{changed: one, allocated: whole}, asked: []string{changes, allocation},
			want: repository.Reading{Way: repository.WayChanged, FullySequence: 1}, read: unit,
		},
		"ChangedAndNotAllocated": {
			reason: "what has changed and is not allocated is zero", driver: driver{changed: one, allocated: []repository.Extent{{Length: mib}}}, asked: []string{changes, allocation},
			want: repository.Reading{Way: repository.WayChanged, FullySequence: 1},
		},
		"NoAllocation": {
			reason: "changes serve without the allocation", driver: driver{changed: one, noAllocations: unsupported}, asked: []string{changes, allocation},
			want: repository.Reading{Way: repository.WayChanged, FullySequence: 1, Why: "allocation is not known: " + unsupported.Error()}, read: unit,
		},
		"NoChanges": {
			reason: "changes that are not complete are none", driver: driver{noChanges: early, allocated: whole}, asked: []string{changes, allocation},
			want: repository.Reading{Way: repository.WayAllocated, FullySequence: 1, Why: "changes are not known: " + early.Error()}, read: diskBytes,
		},
		"Nothing": {
			reason: "all that the kernel knows of is read", driver: driver{noChanges: early, noAllocations: unsupported}, asked: []string{changes, allocation},
			want: repository.Reading{
				Way: repository.WayAll, FullySequence: 2,
				Why: "changes are not known: " + early.Error() + "; allocation is not known: " + unsupported.Error(),
			}, read: -1,
		},
		"NoBase": {
			reason: "without a base only the allocation is known", driver: driver{allocated: whole}, asked: []string{allocation},
			change: func(c *config.Export) {
				c.Disks[0].Tracking.Base, c.Disks[0].Tracking.NoBase = "", "the snapshot of backup \"b1\" is gone"
			},
			want: repository.Reading{Way: repository.WayAllocated, FullySequence: 1, Why: "the snapshot of backup \"b1\" is gone"}, read: diskBytes,
		},
		"Audit": {
			reason: "all is read, and the changes are looked into", driver: driver{changed: one}, asked: []string{changes},
			change: func(c *config.Export) { c.Disks[0].Tracking.Audit = "the last full reading is 7 days old" },
			want:   repository.Reading{Way: repository.WayAudited, FullySequence: 2, Why: "the last full reading is 7 days old"}, read: -1,
		},
		"AuditWithoutChanges": {
			reason: "all is read, whatever the driver says", driver: driver{noChanges: early}, asked: []string{changes},
			change: func(c *config.Export) { c.Disks[0].Tracking.Audit = "asked for" },
			want:   repository.Reading{Way: repository.WayAll, FullySequence: 2, Why: "changes are not known: " + early.Error() + "; asked for"}, read: -1,
		},
		"NotAsked": {
			reason: "the record says why the storage was not asked",
			change: func(c *config.Export) { c.Disks[0].Tracking, c.Disks[0].ReadAll = nil, "the driver told a lie" },
			want:   repository.Reading{Way: repository.WayAll, FullySequence: 2, Why: "the driver told a lie"}, read: -1,
		},
		"NoService": {
			reason: "a service that cannot be reached does not stop a backup",
			change: func(c *config.Export) { c.Disks[0].Tracking.CA = nil },
			want:   repository.Reading{Way: repository.WayAll, FullySequence: 2, Why: "snapshot metadata service cannot be used: its CA bundle holds no certificate"}, read: -1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, newStore())
			task, _ := p.exportTask(t, p.set(t))
			task.Disks, task.State = task.Disks[:1], nil
			first, err := Export(t.Context(), p.Env, task)
			if err != nil {
				t.Fatal(err)
			}
			captured := map[uint64]time.Time{1: task.Created.Truncate(time.Second)}
			task.Created = task.Created.AddDate(0, 0, 1)
			captured[2] = task.Created.Truncate(time.Second)
			task.BackupUID, task.Parent = "second", &config.Commit{Key: first.Key, Digest: first.Digest}
			task.Disks = []config.Disk{task.Disks[0]}
			task.Disks[0].Tracking = &config.Tracking{CA: []byte("pem"), Token: "0", Snapshot: "snap-2", Base: "handle-1"}
			if tc.change != nil {
				tc.change(&task)
			}
			p.Track = func(s changedblocks.Service) (Tracker, error) {
				if s.CA == nil {
					return changedblocks.Dial(s)
				}
				return &tc.driver, nil
			}
			got, err := Export(t.Context(), p.Env, task)
			if err != nil {
				t.Fatal(err)
			}
			reading := got.Volumes[0].Reading
			if tc.want.Way == repository.WayChanged && reading.UnreadBytes == 0 {
				t.Error("nothing was taken over unread")
			}
			reading.UnreadBytes = 0
			tc.want.FullyAt = captured[tc.want.FullySequence]
			if diff := cmp.Diff(tc.want, reading); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.asked, tc.driver.asked); diff != "" {
				t.Errorf("%s; asked (-want +got):\n%s", tc.reason, diff)
			}
			if tc.read >= 0 && got.ReadBytes != tc.read+documentBytes(t, p) {
				t.Errorf("%s: %d bytes read, want %d", tc.reason, got.ReadBytes, tc.read+documentBytes(t, p))
			}
		})
	}
}

// documentBytes is what the documents, which are always read, come to.
func documentBytes(t *testing.T, p *pod) int64 {
	t.Helper()
	volume, err := documentsVolume(p.DocumentsVolume, p.Paths.Spec)
	if err != nil {
		t.Fatal(err)
	}
	q := newPod(t, newStore())
	task := config.Export{
		VM: config.VM{UID: "x"}, BackupUID: "y", Created: time.Unix(1, 0), Recipients: q.set(t).Recipients,
	}
	x := &export{env: q.Env, config: task}
	backup, err := x.begin(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer backup.Close()
	if _, err := backup.AddTree(t.Context(), volume); err != nil {
		t.Fatal(err)
	}
	return x.read
}

// The token is read each time: the kubelet renews it.
func TestTrackToken(t *testing.T) {
	p := newPod(t, nil)
	p.Paths.Tokens = t.TempDir()
	var service changedblocks.Service
	p.Track = func(s changedblocks.Service) (Tracker, error) { service = s; return &driver{}, nil }
	if _, err := p.track(config.Tracking{Token: "0"}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.Token(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no token: %v", err)
	}
	for _, want := range []string{"first", "second"} {
		write(t, filepath.Join(p.Paths.Tokens, "0"), []byte(want+"\n"))
		if got, err := service.Token(); got != want || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}
