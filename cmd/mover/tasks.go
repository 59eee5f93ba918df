package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/mover/signingkeys"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/repository"
)

var errNotTold = fmt.Errorf("%w: its section is missing in the config", mover.ErrTask)

func (p *program) storeOptions() (s3store.Options, error) {
	if p.config.Store == nil {
		return s3store.Options{}, fmt.Errorf("%w: no store in the config", mover.ErrTask)
	}
	return mover.StoreOptions(*p.config.Store, p.env.Paths)
}

// open opens the store and returns the signing key that it is pinned to.
func (p *program) open() (rootKey []byte, err error) {
	opt, err := p.storeOptions()
	if err != nil {
		return nil, err
	}
	if p.env.Store, err = s3store.New(opt); err != nil {
		return nil, err
	}
	p.env.ReadBytesPerSecond, p.env.Lock = p.config.Store.ReadBytesPerSecond, p.config.Store.Lock
	if p.env.Known, err = signingkeys.Of(*p.config.Store); err != nil {
		return nil, err
	}
	return mover.RootKey(*p.config.Store)
}

func setup(ctx context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.Setup == nil {
		return status, errNotTold
	}
	opt, err := p.storeOptions()
	if err != nil {
		return status, err
	}
	if p.env.Known, err = signingkeys.Of(*p.config.Store); err != nil {
		return status, err
	}
	keeper := secretKeeper{p.objects, p.config.Setup.KeysSecretName}
	result, err := mover.Setup(ctx, p.env, *p.config.Setup, s3store.Target(opt), keeper)
	status.Setup = &v1alpha1.SetupResult{
		Findings: []v1alpha1.Finding{}, ChecksumMode: result.Probe.Checksum,
		RepositoryID: result.RepositoryID, SigningKey: result.SigningKey, Writable: result.Writable,
		Superseded: result.Superseded, Proven: result.Proven, Trust: trustMark(result.Trust),
	}
	for _, recipient := range slices.Sorted(maps.Keys(result.Challenges)) {
		status.Setup.Challenges = append(status.Setup.Challenges, v1alpha1.RecipientChallenge{
			Recipient: recipient, Challenge: result.Challenges[recipient],
		})
	}
	for _, f := range result.Probe.Findings {
		status.Setup.Findings = append(status.Setup.Findings, v1alpha1.Finding{
			Check: f.Check, Outcome: v1alpha1.FindingOutcome(f.Outcome), Message: f.Message,
		})
	}
	return status, err
}

// trustMark is what the manager keeps of a store's signing keys; nil if nothing was found.
func trustMark(k repository.Known) *v1alpha1.TrustMark {
	if k.Epoch == 0 {
		return nil
	}
	out := &v1alpha1.TrustMark{KeyEpoch: int64(k.Epoch), SigningKey: base64.StdEncoding.EncodeToString(k.SigningKey)}
	for _, w := range k.Words {
		out.Distrust = append(out.Distrust, v1alpha1.DistrustMark{Epoch: int64(w.Epoch), Number: int64(w.Number), Digest: hex.EncodeToString(w.Digest[:])})
	}
	return out
}

func export(ctx context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.Export == nil {
		return status, errNotTold
	}
	if _, err := p.open(); err != nil {
		return status, err
	}
	done, err := mover.Export(ctx, p.env, *p.config.Export)
	if err != nil {
		return status, err
	}
	status.Export = &v1alpha1.ExportResult{
		Commit:      v1alpha1.CommitRef{Key: done.Key, Digest: done.Digest, Sequence: int64(done.Sequence)},
		StateDigest: done.StateDigest, SentBytes: done.StoredBytes, ReadBytes: done.ReadBytes,
	}
	for _, v := range done.Volumes {
		var fully *metav1.MicroTime
		if at := v.Reading.FullyAt; !at.IsZero() {
			fully = &metav1.MicroTime{Time: at}
		}
		status.Export.Volumes = append(status.Export.Volumes, v1alpha1.ExportedVolume{
			Name: v.Name, Role: v1alpha1.VolumeRole(v.Role), SizeBytes: v.Size, ContentRoot: v.Digest,
			Reading: &v1alpha1.VolumeReading{
				Name: v.Name, Way: v1alpha1.ReadingWay(v.Reading.Way), Reason: v.Reading.Why,
				UnreadBytes: v.Reading.UnreadBytes, FullySequence: int64(v.Reading.FullySequence), FullyReadAt: fully,
				UntoldBytes: v.Reading.UntoldBytes, UntoldAt: v.Reading.UntoldAt,
			},
		})
	}
	return status, nil
}

func resolve(ctx context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.Resolve == nil {
		return status, errNotTold
	}
	rootKey, err := p.open()
	if err != nil {
		return status, err
	}
	found, err := mover.Resolve(ctx, p.env, *p.config.Resolve, rootKey)
	if err != nil {
		return status, err
	}
	from, err := restoredFrom(found)
	if err != nil {
		return status, fmt.Errorf("backup %q: %w: %w", found.Backup.Name, errUnreadable, err)
	}
	status.Resolve = &v1alpha1.ResolveResult{From: from}
	return status, nil
}

// errUnreadable: the backup is authentic and whole, and holds documents that this
// version does not understand.
var errUnreadable = errors.New("documents cannot be read")

// Texts of RestoredFrom.Authentic.
const (
	authenticPinned   = "signed by the key that the store is pinned to"
	authenticUnpinned = "signed by the key that the bucket itself shows; compare the store's signing key with a copy kept elsewhere"
)

func restoredFrom(found mover.Resolved) (v1alpha1.RestoredFrom, error) {
	raw := found.Documents[document.FileName]
	documents, err := document.Decode(raw)
	if err != nil {
		return v1alpha1.RestoredFrom{}, err
	}
	var moment v1alpha1.Moment
	if err := json.Unmarshal(found.Moment, &moment); err != nil {
		return v1alpha1.RestoredFrom{}, fmt.Errorf("moment: %w", err)
	}
	from := v1alpha1.RestoredFrom{
		VM:         found.VM.Namespace + "/" + found.VM.Name,
		VMUID:      types.UID(found.VM.UID),
		BackupName: found.Backup.Name,
		Commit:     &v1alpha1.CommitRef{Key: found.Key, Digest: found.Digest, Sequence: int64(found.Sequence)},
		TakenAt:    moment.CutEnded,
		Authentic:  authenticUnpinned,
		Documents:  &runtime.RawExtension{Raw: raw},
	}
	if found.Authenticated {
		from.Authentic = authenticPinned
	}
	if from.TakenAt.IsZero() {
		from.TakenAt = metav1.NewMicroTime(found.Created)
	}
	for _, v := range documents.Volumes {
		if v.Outcome == v1alpha1.VolumeIncluded {
			from.Volumes = append(from.Volumes, v.VolumeFacts)
		}
	}
	return from, nil
}

func importVolumes(ctx context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.Import == nil {
		return status, errNotTold
	}
	var rootKey []byte
	if p.config.Import.Commit != nil {
		if rootKey, err = p.open(); err != nil {
			return status, err
		}
	}
	done, err := mover.Import(ctx, p.env, *p.config.Import, rootKey)
	if err != nil {
		return status, err
	}
	status.Import = &v1alpha1.ImportResult{Notes: p.notes}
	for _, v := range done {
		status.Import.Volumes = append(status.Import.Volumes, v1alpha1.ImportedVolume(v))
	}
	return status, nil
}

func keepState(_ context.Context, p *program) (status v1alpha1.VMStateReportStatus, err error) {
	if p.config.KeepState == nil {
		return status, errNotTold
	}
	return status, mover.KeepState(p.env, *p.config.KeepState)
}
