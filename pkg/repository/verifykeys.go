package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// readKeys looks at the data key of every attempt that any backup needs: with an identity
// that opens it at what it holds, otherwise at its form.
func (m *machineVerify) readKeys(ctx context.Context) error {
	found := map[keys.Origin]DamagedObject{}
	asked := map[keys.Origin]bool{}
	for _, c := range m.commits {
		if c.err != nil {
			continue
		}
		err := c.eachKey(ctx, m.objects, func(_ Extent, err error) error {
			c.broken = err
			return nil
		}, func(k index.DataKey) error {
			if asked[k.Origin] {
				return nil
			}
			asked[k.Origin] = true
			why, err := m.repo.checkKey(ctx, m.id, k)
			if why != "" && m.lookBehind(ctx) {
				why, err = m.repo.checkKey(ctx, m.id, k)
			}
			if why != "" {
				found[k.Origin] = DamagedObject{Key: layout.DataKey(m.id, k.Origin), Why: why}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	list := make([]DamagedObject, 0, len(found))
	for _, d := range found {
		list = append(list, d)
	}
	m.state.replace(list, DamagedObject.isKey)
	return nil
}

// eachKey calls do for the data keys that a backup needs, and broken with the ordinals
// that cannot be read.
func (c *verifyCommit) eachKey(
	ctx context.Context, o objects, broken func(ordinals Extent, err error) error, do func(index.DataKey) error,
) error {
	walk := index.WalkKeys(index.NewNodes(c.epoch.Set, o.vm), o, c.keys)
	lose := func(from, to uint64, err error) error {
		err = fmt.Errorf("key table of %q: %w", c.ref.Key, err)
		if !isBroken(err) {
			return err
		}
		return broken(Extent{Offset: int64(from), Length: int64(to - from)}, err)
	}
	walk.Lost(lose)
	for at := uint64(0); ; at = walk.Next() {
		first, err := walk.Seek(ctx, at)
		if err != nil || first == index.End {
			return err
		}
		entries, err := walk.Entries(ctx)
		if err != nil {
			err = lose(first, walk.Next(), err)
		}
		for i := range entries {
			err = cmp.Or(err, do(entries[i].Entry))
		}
		if err != nil {
			return err
		}
	}
}

// checkKey tells why a data key cannot be opened any more, by anyone; empty if it can, as
// far as this repository's keys tell.
func (r *Repository) checkKey(ctx context.Context, vm keys.ID, k index.DataKey) (why string, err error) {
	if len(r.identities) > 0 {
		d := &dataKeys{repo: r, vm: vm}
		if _, err = d.read(ctx, k); !errors.Is(err, ErrWrongIdentity) {
			return whyOf(err)
		}
	}
	name := layout.DataKey(vm, k.Origin)
	why, err = whyOf(r.checkKeyFile(ctx, name))
	if why == "" {
		return "", err
	}
	for info, err := range r.store.List(ctx, strings.TrimSuffix(name, ".age")+"-") {
		if err != nil {
			return "", fmt.Errorf("list key files: %w", err)
		}
		if other, err := whyOf(r.checkKeyFile(ctx, info.Key)); other == "" {
			return "", err
		}
	}
	return why, nil
}

func (r *Repository) checkKeyFile(ctx context.Context, name string) error {
	file, err := objectstore.Get(ctx, r.store, name, maxKeyFile)
	if err != nil {
		return fmt.Errorf("read data key: %w", readError(err))
	}
	return keys.CheckWrapped(file, dataKeyBytes)
}

// whyOf sorts an error into damage, in one word, and what is none.
func whyOf(err error) (string, error) {
	switch {
	case errors.Is(err, ErrMissing):
		return "missing", nil
	case isBroken(err):
		return "altered", nil
	default:
		return "", err
	}
}
