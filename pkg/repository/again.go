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
	if !suspicious(err) || !lookBehind(ctx, s, prefixes) {
		return err // if that could not be seen, what was wrong before is the news
	}
	return do()
}

// lookBehind reports whether something was found to be put over objects below prefixes
// that was not known of. From now on these are read as they were made.
func lookBehind(ctx context.Context, s objectstore.Store, prefixes []string) (found bool) {
	oldest := oldestIn(s)
	if oldest == nil {
		return false
	}
	for _, prefix := range prefixes {
		more, err := oldest.LookBehind(ctx, prefix)
		if err != nil {
			return false
		}
		found = found || more
	}
	return found
}

// oldestIn is what looks through versions in s; nil if nothing does.
func oldestIn(s objectstore.Store) *objectstore.Oldest {
	switch s := s.(type) {
	case *objectstore.Oldest:
		return s
	case *pacedStore:
		return oldestIn(s.Store)
	default:
		return nil
	}
}

// lookBehind is the above for all backups of a virtual machine.
func (r *Repository) lookBehind(ctx context.Context, vm keys.ID) bool {
	return lookBehind(ctx, r.store, prefixesOf(vm))
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
	if oldest := oldestIn(r.store); oldest != nil {
		return oldest.Covered()
	}
	return nil
}
