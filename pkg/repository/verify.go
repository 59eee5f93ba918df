package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// VerifySpec asks for one part of a round: a round reads every pack that any backup
// reaches once, of all virtual machines.
type VerifySpec struct {
	// State is what the call before returned; empty begins the first round.
	State string
	// BytesPerSecond bounds how fast the store is read; 0 does not.
	BytesPerSecond int64
	// Full opens every backup as well, after the packs of its virtual machine were read
	// (see Prove): ErrNoIdentity without an identity. It is for whole rounds.
	Full bool
	// Parts cuts a round: a call reads about one part of what the store holds, and the
	// next call goes on behind it. 0 and 1 read all that is left of the round.
	Parts int
	// Until ends the call when its part is not read by then, as if it were; the zero time does not.
	Until time.Time
	// Progress is told after each batch of packs or so; nil is allowed. It is called from
	// one goroutine. Its State is good to go on from if the process ends there.
	Progress func(VerifyProgress)
}

// VerifyProgress counts what this call has read. Total is what the store holds, what no
// backup reaches included.
type VerifyProgress struct {
	State        string
	Packs, Bytes int64
	Total        int64
	// Opening is the backup that is being opened; nil while packs are read.
	Opening *ProveProgress
	// Backups are the verdicts of this call so far: State does not hold them.
	Backups []Verdict
}

// VerifyResult is what one call has found.
type VerifyResult struct {
	// State is for the next call, also after an error.
	State string
	// RoundDone says that a whole round has ended with this call.
	RoundDone bool
	// Packs and Bytes were read by this call.
	Packs, Bytes int64
	// Backups are verdicts: of all backups of the virtual machines that this call came
	// to the end of, and of those that it knows to be damaged.
	Backups []Verdict
	// Damaged are all objects known to be damaged, those found by earlier calls included
	// until they were read again. Give the keys to BackupSpec.Damaged.
	Damaged []DamagedObject
}

// Outcome is what is known of one backup.
type Outcome string

// The outcomes. A backup is Verified if every pack that it reaches was read in this
// round and is bit for bit as written, or all of it was opened. It is Damaged if something
// that it needs is not. Closed is a backup of which no identity given opens all, Unknown
// one that could not be looked at: nothing is said against either.
const (
	OutcomeVerified Outcome = "Verified"
	OutcomeDamaged  Outcome = "Damaged"
	OutcomeClosed   Outcome = "Closed"
	OutcomeUnknown  Outcome = "Unknown"
)

// Verdict is what is known of one backup. VM and Backup are empty if its record cannot
// be read.
type Verdict struct {
	CommitRef
	VM      VM
	Backup  BackupID
	Outcome Outcome
	// Volumes are those hurt, and nothing else of the backup is.
	Volumes []VolumeDamage `json:",omitempty"`
	// Reason says why it is Damaged or Unknown, and names the objects.
	Reason string `json:",omitempty"`
}

// VolumeDamage is what one volume has lost. Without an identity a damaged pack counts
// as lost whole.
type VolumeDamage struct {
	Name, Role string
	Kind       VolumeKind
	// Bytes are lost, in Ranges; there are at most MaxRanges of these, the first ones.
	Bytes  int64
	Ranges []Extent
}

// MaxRanges bounds VolumeDamage.Ranges.
const MaxRanges = 1024

// DamagedObject is an object that is not what was written.
type DamagedObject struct {
	Key string
	// Why is one of "missing", "cut", "grown", "altered", "unreadable".
	Why string
	// Ordinal is the pack's place in the pack tables, for Verify.
	Ordinal uint64
}

// maxDamaged bounds how many damaged objects are remembered: 64 KiB in a State. With more the
// store is beyond telling one backup from the other.
const maxDamaged = 512

// Verify reads packs and compares them, bit for bit, with what the pack tables say; it
// needs no identity. It reads each pack once however many backups share it, a few at
// once, and holds up to verifyMemory of them. Damage is in the result and not an error.
// An error is one of the store, which says nothing about what that holds: give
// VerifyResult.State to the next try.
func (r *Repository) Verify(ctx context.Context, spec VerifySpec) (VerifyResult, error) {
	if spec.BytesPerSecond < 0 || spec.Parts < 0 {
		return VerifyResult{State: spec.State}, fmt.Errorf("%w: rate or parts are negative", ErrInvalid)
	}
	if spec.Full && len(r.identities) == 0 {
		return VerifyResult{State: spec.State}, ErrNoIdentity
	}
	v, err := r.newVerifier(spec)
	if err != nil {
		return VerifyResult{State: spec.State}, err
	}
	err = v.round(ctx)
	v.result.State = v.state.encode()
	v.result.Damaged = slices.Clone(v.state.Damaged)
	if err != nil {
		return v.result, fmt.Errorf("verify: %w", err)
	}
	return v.result, nil
}

// verifier is one call of Verify.
type verifier struct {
	repo   *Repository
	spec   VerifySpec
	state  verifyState
	reader *packReader
	result VerifyResult
	// left is how many bytes this call may still read; negative is no bound.
	left int64
	// opening is how far the backup is that is being opened; nil if none is.
	opening *ProveProgress
}

func (r *Repository) newVerifier(spec VerifySpec) (*verifier, error) {
	state, err := decodeVerifyState(spec.State)
	if err != nil {
		return nil, err
	}
	if spec.Progress == nil {
		spec.Progress = func(VerifyProgress) {}
	}
	r = r.paced(spec.BytesPerSecond)
	return &verifier{repo: r, spec: spec, state: state, reader: newPackReader(r.store)}, nil
}

// round goes on with the round, from the virtual machine that the state names.
func (v *verifier) round(ctx context.Context) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	machines, err := v.repo.machines(ctx)
	if err != nil {
		return err
	}
	v.state.forget(machines)
	for _, vm := range machines {
		if vm.String() < v.state.VM {
			continue
		}
		done, err := v.machine(ctx, vm)
		if err != nil || !done {
			return err
		}
	}
	v.state.leave()
	v.result.RoundDone = true
	return nil
}

// begin sets how much is read: one part of what the store holds at the round's begin.
func (v *verifier) begin(ctx context.Context) error {
	v.left = -1
	if v.spec.Parts <= 1 {
		return nil
	}
	if v.state.Total == 0 {
		for info, err := range v.repo.store.List(ctx, layout.Runs) {
			if err != nil {
				return fmt.Errorf("list packs: %w", err)
			}
			v.state.Total += info.Size
		}
	}
	v.left = v.state.Total/int64(v.spec.Parts) + 1
	return nil
}

// machines are the virtual machines that have commits, in the order of their ids.
func (r *Repository) machines(ctx context.Context) ([]keys.ID, error) {
	var out []keys.ID
	for info, err := range r.store.List(ctx, layout.Commits) {
		if err != nil {
			return nil, fmt.Errorf("list commits: %w", err)
		}
		name, err := layout.ParseCommit(info.Key)
		if err == nil && (len(out) == 0 || out[len(out)-1] != name.VM) {
			out = append(out, name.VM)
		}
	}
	return out, nil
}

// tell reports progress, and with it how to go on.
func (v *verifier) tell() {
	v.spec.Progress(VerifyProgress{
		State: v.state.encode(), Packs: v.result.Packs, Bytes: v.result.Bytes, Total: v.state.Total,
		Opening: v.opening, Backups: slices.Clone(v.result.Backups),
	})
}

// spent reports whether this call has read its part, or for as long as it may. It reads something in any case.
func (v *verifier) spent() bool {
	late := !v.spec.Until.IsZero() && v.result.Bytes > 0 && !time.Now().Before(v.spec.Until)
	return late || v.left >= 0 && v.result.Bytes >= v.left
}

func compareDamaged(a, b DamagedObject) int {
	return cmp.Or(strings.Compare(machineOf(a.Key), machineOf(b.Key)), cmp.Compare(a.Ordinal, b.Ordinal), strings.Compare(a.Key, b.Key))
}
