package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/repository"
)

const (
	// maxPage bounds the entries of a report in bytes: etcd takes 1.5 MiB an object.
	maxPage = 600 << 10
	// maxFaults bounds how many broken records a report names.
	maxFaults = 100
	// maxText bounds what a person wrote, or an error says, in an entry.
	maxText = 1024
)

func catalogue(ctx context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.Catalogue == nil {
		return status, errNotTold
	}
	rootKey, err := p.open()
	if err != nil {
		return status, err
	}
	page, err := mover.Catalogue(ctx, p.env, *p.config.Catalogue, rootKey)
	if err != nil {
		return status, err
	}
	status.Catalogue, err = pageOf(p.config.Catalogue.After, page)
	return status, err
}

// pageOf is a page as it is reported. It ends early where the report would be too large.
func pageOf(after string, page *repository.Catalogue) (*v1alpha1.CatalogueResult, error) {
	out := &v1alpha1.CatalogueResult{After: after, Through: page.Through, More: page.More}
	size := 0
	for i, c := range page.Commits {
		if !describable(c) {
			page.Damaged = append(page.Damaged, repository.BrokenCommit{Key: c.Key, Err: errLater})
			continue
		}
		entry := entryOf(c)
		raw, err := json.Marshal(entry)
		if err != nil {
			return nil, err
		}
		if size += len(raw); size > maxPage && i > 0 {
			out.Through, out.More = page.Commits[i-1].Key, true
			break
		}
		out.Entries = append(out.Entries, entry)
	}
	out.Damaged, out.Missing = faults(page.Damaged, out.Through), faults(page.Missing, "")
	return out, nil
}

var errLater = errors.New("it holds volumes of a kind that this version does not know; use a later vmstate")

// describable: a volume of a role that the API does not have would cost the whole page.
func describable(c *repository.Commit) bool {
	return !slices.ContainsFunc(c.Volumes, func(v repository.VolumeResult) bool {
		return v.Role != mover.RoleDisk && v.Role != mover.RoleFirmwareState && v.Role != mover.RoleSpec
	})
}

// faults are those up to a key; with an empty one, all.
func faults(broken []repository.BrokenCommit, through string) []v1alpha1.CatalogueFault {
	var out []v1alpha1.CatalogueFault
	for _, b := range broken {
		if len(out) < maxFaults && (through == "" || b.Key <= through) {
			out = append(out, v1alpha1.CatalogueFault{Key: shortened(b.Key), Message: shortened(b.Err.Error())})
		}
	}
	return out
}

func entryOf(c *repository.Commit) v1alpha1.CatalogueEntry {
	out := v1alpha1.CatalogueEntry{
		Commit:      v1alpha1.CommitRef{Key: c.Key, Digest: c.Digest, Sequence: int64(c.Sequence)},
		VMNamespace: c.VM.Namespace, VMName: c.VM.Name, VMUID: types.UID(c.VM.UID),
		BackupNamespace: c.Backup.Namespace, BackupName: c.Backup.Name, BackupUID: types.UID(c.Backup.UID),
		TakenAt: metav1.NewMicroTime(c.Created), StoredBytes: c.StoredBytes,
	}
	// A moment of a later version is left out: the backup can be restored all the same.
	var moment v1alpha1.Moment
	if err := json.Unmarshal(c.Moment, &moment); err == nil && known(moment) {
		moment.QuiesceMessage = shortened(moment.QuiesceMessage)
		out.Moment, out.TakenAt = &moment, moment.CutEnded
	}
	for _, v := range c.Volumes {
		if v.Role == mover.RoleSpec {
			continue
		}
		out.Volumes = append(out.Volumes, v1alpha1.VolumeFacts{
			Name: v.Name, Role: v1alpha1.VolumeRole(v.Role), VolumeMode: v.Mode, SizeBytes: v.Size,
		})
	}
	return out
}

// known says that the API server takes a moment: one that it does not would cost the whole page.
func known(m v1alpha1.Moment) bool {
	return !m.CutStarted.IsZero() && !m.CutEnded.IsZero() &&
		slices.Contains([]v1alpha1.DiskBinding{v1alpha1.DisksOffline, v1alpha1.DisksSingle, v1alpha1.DisksGroup, v1alpha1.DisksFence}, m.Disks) &&
		slices.Contains([]v1alpha1.StateBinding{v1alpha1.StateOffline, v1alpha1.StateWitness, v1alpha1.StateFence, v1alpha1.StateNone}, m.State) &&
		slices.Contains([]v1alpha1.QuiesceOutcome{
			v1alpha1.QuiesceFrozen, v1alpha1.QuiesceNotAsked, v1alpha1.QuiesceNoAgent, v1alpha1.QuiesceFailed, v1alpha1.QuiesceOffline,
		}, m.Quiesce)
}

func shortened(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}
