package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// objects reads the objects of one virtual machine.
type objects struct {
	store objectstore.Store
	vm    keys.ID
}

var _ index.Fetcher = objects{}

// Fetch reads a range of an index pack.
func (o objects) Fetch(ctx context.Context, l index.Location) ([]byte, error) {
	key := layout.IndexPack(o.vm, l.Origin, l.Number)
	b, err := objectstore.GetRange(ctx, o.store, key, l.Offset, l.Length)
	if err != nil {
		return nil, fmt.Errorf("read index: %w", readError(err))
	}
	return b, nil
}

// readError adds what a store's answer means to a backup that needs the object:
// absent is ErrMissing, cut is ErrDamaged, and unreachable is neither.
func readError(err error) error {
	switch {
	case errors.Is(err, objectstore.ErrNotFound):
		return fmt.Errorf("%w: %w", ErrMissing, err)
	case errors.Is(err, objectstore.ErrShort), errors.Is(err, objectstore.ErrCorrupted),
		errors.Is(err, objectstore.ErrTooLarge):
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	default:
		return err
	}
}

// isBroken reports whether err means that stored data is unusable, so that another
// try will not help.
func isBroken(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, ErrMissing) || errors.Is(err, ErrNotAuthentic)
}

// isOfOne reports whether err is about one backup, so that a list can go on.
func isOfOne(err error) bool {
	for _, kind := range []error{ErrInvalid, ErrUnsupported, ErrWrongIdentity, ErrNoIdentity, ErrNoCommit} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return isBroken(err)
}
