package mover

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// ErrKeysExist is what a KeyKeeper answers if keys are kept already.
var ErrKeysExist = errors.New("repository keys exist already")

// KeyKeeper keeps a new key set where later Jobs find it mounted.
type KeyKeeper interface {
	// Keep stores secret, or fails with ErrKeysExist; it never replaces.
	Keep(ctx context.Context, secret map[string][]byte) error
}

// SetupResult is what Setup found and made.
type SetupResult struct {
	Probe        probe.Result
	RepositoryID string
	// SigningKey is the root signing key of the repository in base64.
	SigningKey string
	// Writable says that the keys of the repository are kept here.
	Writable bool
}

// Setup probes target and makes the repository in it, or opens the one that is there. New keys are kept before anything is written that depends on them, so that
// no crash leaves a repository whose keys are nowhere. Its result is useful also
// where it returns an error: the findings say what stands in the way.
func Setup(ctx context.Context, e Env, c config.Setup, target probe.Target, keeper KeyKeeper) (SetupResult, error) {
	recipients, err := keys.ParseRecipients(c.Recipients)
	if err != nil {
		return SetupResult{}, err
	}
	result := SetupResult{Probe: probe.Run(ctx, target)}
	if result.Probe.Err != nil {
		return result, fmt.Errorf("probe of %s: %w", target.Name(), result.Probe.Err)
	}
	if e.Store, err = target.Open(result.Probe.Checksum); err != nil {
		return result, err
	}
	result.Writable, err = e.initialise(ctx, recipients, keeper)
	if err != nil {
		return result, err
	}
	format, err := keys.ReadFormat(ctx, e.Store)
	if err != nil {
		return result, fmt.Errorf("read back the repository's description: %w", err)
	}
	result.RepositoryID = format.Repository
	result.SigningKey = base64.StdEncoding.EncodeToString(format.RootKey)
	return result, nil
}

// initialise makes sure that there is a repository, and tells whether its keys are here.
func (e Env) initialise(ctx context.Context, r repository.Recipients, keeper KeyKeeper) (writable bool, err error) {
	k, err := e.repositoryKeys()
	switch {
	case err == nil:
		err = repository.Init(ctx, e.Store, k, r)
		if errors.Is(err, repository.ErrForeign) {
			return false, nil // made elsewhere; good for restores
		}
		return err == nil, err
	case !errors.Is(err, ErrMount):
		return false, err
	}
	exists, err := repository.Exists(ctx, e.Store)
	if err != nil || exists {
		return false, err
	}
	k, err = keys.Generate()
	if err != nil {
		return false, err
	}
	if err := keeper.Keep(ctx, k.Secret()); err != nil {
		if errors.Is(err, ErrKeysExist) { // of an earlier try, made after this pod's mounts
			return false, fmt.Errorf("%w to find them mounted: %w", ErrStartAgain, err)
		}
		return false, fmt.Errorf("keep the new keys: %w", err)
	}
	err = repository.Init(ctx, e.Store, k, r)
	return err == nil, err
}
