package repository

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// verifyState is how far a round has come. Within a virtual machine packs are read in
// the order of their ordinals. A pack keeps its ordinal in every backup and new ones get
// higher ones, so neither new backups nor removals move what is ahead.
type verifyState struct {
	Version int `json:"version"`
	// VM is being read; Next is the first ordinal that is not read yet.
	VM   string `json:"vm,omitempty"`
	Next uint64 `json:"next,omitempty"`
	// Seen names the backups that were there when VM was begun, by the first bytes of
	// their digests: only of these can it be said that all their packs were read.
	Seen []byte `json:"seen,omitempty"`
	// Overflow says that VM has more damaged packs than are remembered.
	Overflow bool `json:"overflow,omitempty"`
	// Covered says that something was put over objects of VM.
	Covered bool `json:"covered,omitempty"`
	// Total bytes in the store when the round began.
	Total   int64           `json:"total,omitempty"`
	Damaged []DamagedObject `json:"damaged,omitempty"`
	// Proven are the backups of VM that were opened, Proof the one that is being opened.
	Proven []provenBackup `json:"proven,omitempty"`
	Proof  *provenBackup  `json:"proof,omitempty"`
}

const (
	verifyStateVersion = 1
	seenBytes          = 8
)

func decodeVerifyState(text string) (verifyState, error) {
	s := verifyState{Version: verifyStateVersion}
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, fmt.Errorf("%w: state of the verification: %w", ErrInvalid, err)
	}
	if s.Version != verifyStateVersion || len(s.Seen)%seenBytes != 0 {
		return s, fmt.Errorf("%w: state of the verification has version %d; begin anew without it", ErrInvalid, s.Version)
	}
	return s, nil
}

func (s *verifyState) encode() string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("encode strings and numbers: %v", err)) // they always encode
	}
	return string(text)
}

// enter begins a virtual machine with these backups, or goes on with it.
func (s *verifyState) enter(vm keys.ID, commits []*verifyCommit) {
	if s.VM == vm.String() {
		return
	}
	*s = verifyState{Version: s.Version, VM: vm.String(), Total: s.Total, Damaged: s.Damaged}
	for _, c := range commits {
		s.Seen = append(s.Seen, c.digest[:seenBytes]...)
	}
}

// leave ends a round: what is damaged is remembered, where it was is not.
func (s *verifyState) leave() { *s = verifyState{Version: s.Version, Damaged: s.Damaged} }

// proof is what came of opening a backup; nil if it was not opened.
func (s *verifyState) proof(d commit.Digest) *proofState {
	for i := range s.Proven {
		if s.Proven[i].is(d) {
			return &s.Proven[i].State
		}
	}
	return nil
}

func (s *verifyState) seen(d commit.Digest) bool {
	for at := 0; at < len(s.Seen); at += seenBytes {
		if slices.Equal(s.Seen[at:at+seenBytes], d[:seenBytes]) {
			return true
		}
	}
	return false
}

// passed puts what was found at the ordinals below next in the place of what an earlier
// round had found there.
func (s *verifyState) passed(next uint64, found []DamagedObject) {
	s.replace(found, func(d DamagedObject) bool { return !d.isKey() && d.Ordinal >= s.Next && d.Ordinal < next })
	s.Next = next
}

// replace puts what was found in the place of what old says of the virtual machine.
func (s *verifyState) replace(found []DamagedObject, old func(DamagedObject) bool) {
	s.Damaged = slices.DeleteFunc(s.Damaged, func(d DamagedObject) bool { return machineOf(d.Key) == s.VM && old(d) })
	if room := maxDamaged - len(s.Damaged); len(found) > room {
		found, s.Overflow = found[:room], true
	}
	s.Damaged = append(s.Damaged, found...)
	slices.SortFunc(s.Damaged, compareDamaged)
}

func (d DamagedObject) isKey() bool {
	o, err := layout.ParseRunObject(d.Key)
	return err == nil && o.Kind == layout.KindDataKey
}

// forget drops what was found of virtual machines that have no backups any more.
func (s *verifyState) forget(machines []keys.ID) {
	s.Damaged = slices.DeleteFunc(s.Damaged, func(d DamagedObject) bool {
		return !slices.ContainsFunc(machines, func(vm keys.ID) bool { return vm.String() == machineOf(d.Key) })
	})
}

// machineOf is the virtual machine in the key of a pack.
func machineOf(key string) string {
	parts := strings.SplitN(key, "/", 3)
	if len(parts) < 3 {
		return ""
	}
	return parts[1]
}
