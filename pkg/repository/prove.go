package repository

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/commit"
)

// ProveSpec says how one backup is proven.
type ProveSpec struct {
	// State is what ProveProgress told last of this backup; empty begins.
	State string
	// BytesPerSecond bounds how fast the store is read, the index included; 0 does not.
	BytesPerSecond int64
	// Progress is told after each part; nil is allowed.
	Progress func(ProveProgress)
}

// ProveProgress is how far the proof of a backup is.
type ProveProgress struct {
	// Volume is being read, Done bytes of Total.
	Volume      string
	Done, Total int64
	// Fetched were read from the store by this call.
	Fetched int64
	// State is good to go on from if the process ends there.
	State string
}

// Prove reads all of a backup with an identity, or with keys that were handed over: it opens
// every frame that the backup needs and compares every unit with its content id. Unlike
// Verify it tells a damaged frame from the others of its pack. Damage is in the verdict,
// which is Closed where none is found and something is for other identities; an error says
// nothing about the backup.
func (r *Repository) Prove(ctx context.Context, c *Commit, spec ProveSpec) (Verdict, error) {
	verdict := Verdict{CommitRef: c.CommitRef, VM: c.VM, Backup: c.Backup}
	if spec.BytesPerSecond < 0 {
		return verdict, fmt.Errorf("%w: rate is negative", ErrInvalid)
	}
	var state proofState
	if spec.State != "" {
		if err := json.Unmarshal([]byte(spec.State), &state); err != nil {
			return verdict, fmt.Errorf("%w: state of the proof: %w", ErrInvalid, err)
		}
	}
	p := &prover{repo: r.paced(spec.BytesPerSecond), state: &state, tell: func(p ProveProgress) {
		text, err := json.Marshal(state)
		if err != nil {
			panic(fmt.Sprintf("encode strings and numbers: %v", err)) // they always encode
		}
		if p.State = string(text); spec.Progress != nil {
			spec.Progress(p)
		}
	}}
	o, err := p.repo.readCommit(ctx, c.CommitRef)
	if err == nil {
		_, err = p.backup(ctx, o)
	}
	if err != nil {
		return verdict, fmt.Errorf("prove backup %q: %w", c.Key, err)
	}
	state.judge(&verdict)
	return verdict, nil
}

// proofState is how far the proof of a backup is, and what it has found.
type proofState struct {
	// Checked says that the index was found to be whole, or not.
	Checked bool `json:"checked,omitempty"`
	// Volume is the place in the record of the one that is read, At the first byte of it that is not proven.
	Volume int   `json:"volume,omitempty"`
	At     int64 `json:"at,omitempty"`
	// Reason says what is damaged, Closed what no identity opens.
	Reason  string         `json:"reason,omitempty"`
	Closed  string         `json:"closed,omitempty"`
	Volumes []VolumeDamage `json:"volumes,omitempty"`
}

// judge says what came of a proof that has ended.
func (s *proofState) judge(v *Verdict) {
	v.Outcome, v.Reason, v.Volumes = OutcomeVerified, "", s.Volumes
	switch {
	case s.Reason != "":
		v.Outcome, v.Reason = OutcomeDamaged, s.Reason
	case s.Closed != "":
		v.Outcome, v.Reason = OutcomeClosed, s.Closed
	}
}

// damaged adds bad ranges of a volume.
func (s *proofState) damaged(v *commit.Volume, bad []BadRange) {
	for _, b := range bad {
		if b.Closed {
			s.Closed = cmp.Or(s.Closed, b.Why)
			continue
		}
		s.Reason = cmp.Or(s.Reason, b.Why)
		if n := len(s.Volumes); n == 0 || s.Volumes[n-1].Name != v.Name {
			s.Volumes = append(s.Volumes, VolumeDamage{Name: v.Name, Role: v.Role, Kind: kindOfVolume(v)})
		}
		last := &s.Volumes[len(s.Volumes)-1]
		ranges := lostRanges{last.Ranges, last.Bytes}
		ranges.add(b.Offset, b.Offset+b.Length)
		last.Ranges, last.Bytes = ranges.list, ranges.bytes
	}
}

// prover proves one backup.
type prover struct {
	repo  *Repository
	state *proofState
	tell  func(ProveProgress)
	// spent ends it before the next part; nil never does.
	spent func() bool
	// fetched by this call.
	fetched int64
}

// provePart is how many units of a volume are proven before the state moves on: a window.
const provePart = windowUnits

func (p *prover) backup(ctx context.Context, o *opened) (done bool, err error) {
	if !p.state.Checked {
		err := p.repo.again(ctx, o.ref.Key, func() error { return p.repo.newChecker(o).all(ctx) })
		if err != nil && !isBroken(err) {
			return false, err
		}
		if p.state.Checked = true; err != nil {
			p.state.Reason = err.Error()
		}
	}
	for ; p.state.Volume < len(o.record.Volumes); p.state.Volume++ {
		v := &o.record.Volumes[p.state.Volume]
		for p.state.At < v.Size {
			if p.spent != nil && p.spent() {
				return false, nil
			}
			to := min(p.state.At+provePart*int64(v.Unit), v.Size)
			if err := p.part(ctx, o, v, to); err != nil {
				return false, fmt.Errorf("volume %q: %w", v.Name, err)
			}
			p.state.At = to
			p.tell(ProveProgress{Volume: v.Name, Done: to, Total: v.Size, Fetched: p.fetched})
		}
		p.state.At = 0
	}
	return true, nil
}

// part proves a volume from state.At to there.
func (p *prover) part(ctx context.Context, o *opened, v *commit.Volume, to int64) error {
	for again := false; ; again = true {
		run, err := p.repo.newRestoreOf(ctx, o, v, RestoreSpec{Target: discard{}, Fresh: true}, &badRanges{})
		if err != nil {
			return err
		}
		if err := run.all(ctx, p.state.At, to); err != nil {
			return err
		}
		p.fetched += run.progress.Fetched
		if len(run.bad.list) == 0 || again || !p.repo.lookBehind(ctx, o.header.VM) {
			p.state.damaged(v, run.bad.list)
			return nil
		}
	}
}

// discard is a target that keeps nothing.
type discard struct{}

func (discard) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discard) ReadAt(p []byte, _ int64) (int, error)  { return len(p), nil }
func (discard) Zero(int64, int64) error                { return nil }
func (discard) Sync() error                            { return nil }

// provenBackup is what came of opening a backup, or how far that is.
type provenBackup struct {
	// Backup is named by the first bytes of its digest.
	Backup []byte     `json:"backup"`
	State  proofState `json:"state"`
}

func (b *provenBackup) is(d commit.Digest) bool { return bytes.Equal(b.Backup, d[:seenBytes]) }

// proveAll opens the backups of a virtual machine whose packs are all read, in the order of
// their records. done says that all are open: otherwise this call's part is read.
func (m *machineVerify) proveAll(ctx context.Context) (done bool, err error) {
	s := &m.state
	for _, c := range m.commits {
		if c.err != nil || s.proof(c.digest) != nil {
			continue
		}
		o, err := m.repo.readSigned(ctx, c.ref)
		if errors.Is(err, ErrNoCommit) || errors.Is(err, ErrAborted) {
			continue // removed meanwhile
		}
		if err != nil {
			return false, err
		}
		if s.Proof == nil || !s.Proof.is(c.digest) {
			s.Proof = &provenBackup{Backup: c.digest[:seenBytes]}
		}
		read := m.result.Bytes
		p := &prover{repo: m.repo, state: &s.Proof.State, spent: m.spent, tell: func(p ProveProgress) {
			m.result.Bytes, m.opening = read+p.Fetched, &p
			m.tell()
		}}
		if done, err = p.backup(ctx, o); err != nil || !done {
			return false, err
		}
		s.Proven, s.Proof = append(s.Proven, *s.Proof), nil
	}
	return true, nil
}
