package mover

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vmstate/vmstate/pkg/changedblocks"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// track asks the storage what of a disk need be read, in this order: what has changed since
// the parent, what is allocated. What it cannot say is read, and v.Why tells the reason: a
// backup never fails for want of an answer.
func (x *export) track(ctx context.Context, d config.Disk, v *repository.BlockVolume, r reach) error {
	t := d.Tracking
	if t == nil {
		v.Why = d.ReadAll
		return nil
	}
	if r != asTold {
		v.Why = "the index of the backup before is damaged in the store"
		return nil
	}
	tracker, err := x.env.track(*t)
	if err != nil {
		v.Why = err.Error()
		return nil
	}
	defer tracker.Close()
	snapshot := changedblocks.Snapshot{Namespace: x.config.VM.Namespace, Name: t.Snapshot}
	why := []string{}
	switch {
	case t.Base == "" || x.config.Parent == nil:
		why = append(why, t.NoBase)
	default:
		changed, err := tracker.Changed(ctx, snapshot, t.Base, v.Size)
		if err != nil {
			why = append(why, fmt.Sprintf("changes are not known: %s", err))
			break
		}
		v.Changes = &repository.Changes{
			Since:  repository.CommitRef{Key: x.config.Parent.Key, Digest: x.config.Parent.Digest},
			Ranges: changed, Audit: t.Audit != "",
		}
	}
	if t.Audit == "" {
		allocated, err := tracker.Allocated(ctx, snapshot, v.Size)
		if err != nil {
			why = append(why, fmt.Sprintf("allocation is not known: %s", err))
		} else {
			v.Extents, v.ExtentsTold = allocated, true
		}
	}
	v.Why = strings.Trim(strings.Join(append(why, t.Audit), "; "), "; ")
	return ctx.Err()
}

// track reaches the service of a disk's driver.
func (e Env) track(t config.Tracking) (Tracker, error) {
	s := changedblocks.Service{Address: t.Address, CA: t.CA, Token: func() (string, error) {
		token, err := os.ReadFile(filepath.Join(e.Paths.Tokens, t.Token))
		return strings.TrimSpace(string(token)), err
	}}
	if e.Track != nil {
		return e.Track(s)
	}
	return changedblocks.Dial(s)
}
