package mover

import (
	"context"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// Catalogue lists one page of what e.Store holds, with the repository's keys where they are
// mounted, else with an identity. Nothing of a disk is read.
func Catalogue(ctx context.Context, e Env, c config.Catalogue, rootKey []byte) (*repository.Catalogue, error) {
	if c.Limit <= 0 {
		return nil, fmt.Errorf("%w: a page of %d records", ErrTask, c.Limit)
	}
	repo, err := e.openForRecords(ctx, rootKey)
	if err != nil {
		return nil, fmt.Errorf("open repository: %w", err)
	}
	return repo.Catalogue(ctx, repository.CatalogueSpec{After: c.After, Limit: c.Limit})
}

// openForRecords opens the repository with what is mounted: records need no data key.
func (e Env) openForRecords(ctx context.Context, rootKey []byte) (*repository.Repository, error) {
	k, err := e.repositoryKeys()
	if errors.Is(err, ErrMount) {
		ids, err := e.identities()
		if err != nil {
			return nil, err
		}
		return e.expecting(ctx)(repository.OpenWithIdentities(ctx, e.Store, ids, rootKey))
	}
	if err != nil {
		return nil, err
	}
	return e.expecting(ctx)(repository.OpenWithKeys(ctx, e.Store, k))
}
