package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// CatalogueSpec asks for one page of what a store holds.
type CatalogueSpec struct {
	// After is the key that the page begins behind; empty for the first page.
	After string
	// Limit bounds the records that are read; 0 reads all.
	Limit int
}

// BrokenCommit is a record that is not as it should be, and why.
type BrokenCommit struct {
	Key string
	Err error
}

// Catalogue is one page of what a store holds, in the order of keys.
type Catalogue struct {
	Commits []*Commit
	// Damaged are records that cannot be used. Runs that were aborted are left out.
	Damaged []BrokenCommit
	// Missing are backups that the newest readable record of their virtual machine lists, and
	// that are neither there nor being removed. A virtual machine is looked at on the page that
	// its last key is on.
	Missing []BrokenCommit
	// Through is the last key that was looked at; More says that others follow.
	Through string
	More    bool
}

// catalogueReaders is how many records are read at once.
const catalogueReaders = 8

// Catalogue reads a page of commit records and compares each chain with what its newest record
// says is there. It lists the keys of all records, and of tombstones before and after them: what
// is removed meanwhile is not missing. Errors of one record are in the result.
func (r *Repository) Catalogue(ctx context.Context, spec CatalogueSpec) (*Catalogue, error) {
	removed := map[string]bool{}
	if err := r.listRemoved(ctx, removed); err != nil {
		return nil, err
	}
	keys, err := r.listKeys(ctx, layout.Commits)
	if err != nil {
		return nil, fmt.Errorf("list commits: %w", err)
	}
	if err := r.listRemoved(ctx, removed); err != nil {
		return nil, err
	}
	page := keys[firstAfter(keys, spec.After):]
	out := &Catalogue{Through: spec.After}
	if spec.Limit > 0 && len(page) > spec.Limit {
		page, out.More = page[:spec.Limit], true
	}
	if len(page) > 0 {
		out.Through = page[len(page)-1]
	}
	records, err := r.readPage(ctx, page, out)
	if err != nil {
		return nil, err
	}
	out.checkChains(keys, removed, records)
	return out, nil
}

func firstAfter(keys []string, after string) int {
	at, found := slices.BinarySearch(keys, after)
	if found {
		at++
	}
	return at
}

func (r *Repository) listKeys(ctx context.Context, prefix string) ([]string, error) {
	var keys []string
	for info, err := range r.store.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		keys = append(keys, info.Key)
	}
	return keys, nil
}

// listRemoved adds the keys of the commits that carry a tombstone.
func (r *Repository) listRemoved(ctx context.Context, removed map[string]bool) error {
	keys, err := r.listKeys(ctx, layout.Tombstones)
	if err != nil {
		return fmt.Errorf("list tombstones: %w", err)
	}
	for _, key := range keys {
		removed[layout.Commits+strings.TrimPrefix(key, layout.Tombstones)] = true
	}
	return nil
}

// readPage reads the records at keys, and sorts them into out.
func (r *Repository) readPage(ctx context.Context, page []string, out *Catalogue) ([]*opened, error) {
	records, broken := make([]*opened, len(page)), make([]error, len(page))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(catalogueReaders)
	for i, key := range page {
		group.Go(func() error {
			var err error
			records[i], err = r.readCommit(ctx, CommitRef{Key: key})
			if err != nil && !errors.Is(err, ErrAborted) && !isOfOne(err) {
				return err
			}
			broken[i] = err
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	for i, key := range page {
		switch {
		case errors.Is(broken[i], ErrAborted), errors.Is(broken[i], ErrNoCommit): // ended for good; removed since it was listed
		case broken[i] != nil:
			out.Damaged = append(out.Damaged, BrokenCommit{key, broken[i]})
		default:
			out.Commits = append(out.Commits, r.describe(records[i]))
		}
	}
	return slices.DeleteFunc(records, func(o *opened) bool { return o == nil }), nil
}

// checkChains looks at every virtual machine whose last key is on the page.
func (c *Catalogue) checkChains(keys []string, removed map[string]bool, records []*opened) {
	newest := map[string]*opened{}
	for _, o := range records { // in the order of keys, so the last one wins
		newest[chainOf(o.ref.Key)] = o
	}
	for _, chain := range slices.Sorted(maps.Keys(newest)) {
		end := firstAfter(keys, chain+"~")
		if end == 0 || keys[end-1] > c.Through {
			continue // goes on behind the page
		}
		o := newest[chain]
		for _, link := range o.record.Live {
			key := layout.Commit(o.header.VM, link.Sequence, link.Run)
			_, there := slices.BinarySearch(keys, key)
			if !there && !removed[key] {
				c.Missing = append(c.Missing, BrokenCommit{key, linkError(o, link)})
			}
		}
	}
}

func linkError(o *opened, link commit.Link) error {
	return fmt.Errorf("%w: backup %d of %s/%s, which its backup %d lists as there and which nobody removed",
		ErrNoCommit, link.Sequence, o.record.VM.Namespace, o.record.VM.Name, o.header.Sequence)
}

// chainOf is the folder of a virtual machine's commits.
func chainOf(key string) string { return key[:strings.LastIndexByte(key, '/')+1] }
