package repository

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

func parseDigest(s string) (commit.Digest, error) {
	var d commit.Digest
	if len(s) != 2*len(d) {
		return d, fmt.Errorf("%w: digest %q has %d letters, not %d", ErrInvalid, s, len(s), 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return d, fmt.Errorf("%w: digest %q: %w", ErrInvalid, s, err)
	}
	return d, nil
}

// linkOf turns the name of a commit of vm into what records hold.
func linkOf(ref CommitRef, vm keys.ID) (commit.Link, error) {
	n, err := layout.ParseCommit(ref.Key)
	if err != nil {
		return commit.Link{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if n.VM != vm {
		return commit.Link{}, fmt.Errorf("%w: parent %q is a backup of another virtual machine", ErrInvalid, ref.Key)
	}
	d, err := parseDigest(ref.Digest)
	return commit.Link{Sequence: n.Sequence, Run: n.Run, Digest: d}, err
}

func refOf(vm keys.ID, l commit.Link) CommitRef {
	return CommitRef{Key: layout.Commit(vm, l.Sequence, l.Run), Digest: hex.EncodeToString(l.Digest[:])}
}

// packName tells packs of one virtual machine apart, whatever their ordinals.
type packName struct {
	kind   index.PackKind
	origin keys.Origin
	number uint32
}

func packNameOf(p *index.Pack) packName { return packName{p.Kind, p.Origin, p.Number} }

func (n packName) key(vm keys.ID) string {
	if n.kind == index.IndexPack {
		return layout.IndexPack(vm, n.origin, n.number)
	}
	return layout.DataPack(vm, n.origin, n.number)
}

func comparePackName(a, b packName) int {
	return cmp.Or(
		cmp.Compare(a.kind, b.kind),
		bytes.Compare(a.origin.Run[:], b.origin.Run[:]),
		cmp.Compare(a.origin.Attempt, b.origin.Attempt),
		cmp.Compare(a.number, b.number))
}
