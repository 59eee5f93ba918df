package repository

import (
	"context"
	"errors"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// throughVersions lets a store be read through what was put over its objects: only the
// first version of an object is ours (objectstore.Oldest).
func throughVersions(s objectstore.Store) objectstore.Store {
	if _, keeps := s.(objectstore.Versioned); !keeps {
		return s
	}
	return objectstore.NewOldest(s)
}

// again does what reads. If that meets what is damaged, gone or not authentic, and the
// bucket has older versions of objects below prefixes, it is done once more with these.
// So a bucket that nobody tampered with is never asked for versions.
func again(ctx context.Context, s objectstore.Store, prefixes []string, do func() error) error {
	err := do()
	oldest, keeps := s.(*objectstore.Oldest)
	if !keeps || !suspicious(err) {
		return err
	}
	found := false
	for _, prefix := range prefixes {
		more, lookErr := oldest.LookBehind(ctx, prefix)
		if lookErr != nil {
			return err // what was wrong before is the news
		}
		found = found || more
	}
	if !found {
		return err
	}
	return do()
}

// suspicious tells an error that an object put over ours, or over which a deletion was
// marked, may be the cause of.
func suspicious(err error) bool {
	for _, kind := range []error{ErrNoCommit, ErrNotInitialised, ErrAborted, ErrWrongIdentity, ErrUnsupported} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return isBroken(err)
}

// again is the above for the backups of the virtual machine that key is a commit of.
func (r *Repository) again(ctx context.Context, key string, do func() error) error {
	name, err := layout.ParseCommit(key)
	if err != nil {
		return do()
	}
	return again(ctx, r.store, prefixesOf(name.VM), do)
}

func prefixesOf(vm keys.ID) []string {
	return []string{layout.Commits + vm.String() + "/", "r/" + vm.String() + "/"}
}

// Covered tells the objects that somebody has overwritten or hidden since they were
// made, as far as this repository has come across them: their first versions were read.
func (r *Repository) Covered() []string {
	if oldest, keeps := r.store.(*objectstore.Oldest); keeps {
		return oldest.Covered()
	}
	return nil
}
