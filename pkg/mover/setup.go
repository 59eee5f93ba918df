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
	// Superseded says that they are of an epoch that is over.
	Superseded bool
	// Challenges by fingerprint, for recipients whose identity has proven nothing yet; Proven are the others.
	Challenges map[string][]byte
	Proven     []string
	// Trust is what the store shows of its signing keys.
	Trust repository.Known
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
	k, err := e.initialise(ctx, recipients, keeper, max(1, c.Epoch))
	if errors.Is(err, repository.ErrForeign) {
		err = e.setBack(ctx, err)
	}
	if err != nil {
		return result, err
	}
	format, err := keys.ReadFormat(ctx, e.Store)
	if err != nil {
		return result, fmt.Errorf("read back the repository's description: %w", err)
	}
	result.RepositoryID = format.Repository
	result.SigningKey = base64.StdEncoding.EncodeToString(format.RootKey)
	return result, e.trust(ctx, c, k, &result)
}

// setBack says better why keys are not the store's: somebody may have put others in the place of those that were there.
func (e Env) setBack(ctx context.Context, err error) error {
	f, formatErr := keys.ReadFormat(ctx, e.Store)
	if formatErr != nil {
		return errors.Join(err, formatErr)
	}
	if _, trustErr := keys.Trust(ctx, e.Store, f, nil, e.Known); trustErr != nil {
		return fmt.Errorf("%w (%w)", trustErr, err)
	}
	return err
}

// initialise makes sure that there is a repository with keys of that epoch, and returns them; nil if they are not here.
func (e Env) initialise(ctx context.Context, r repository.Recipients, keeper KeyKeeper, epoch uint32) (*repository.Keys, error) {
	k, err := e.repositoryKeys()
	switch {
	case err == nil && k.Epoch() != epoch:
		return nil, fmt.Errorf("%w: the mounted keys are of epoch %d, not %d", keys.ErrSecret, k.Epoch(), epoch)
	case err == nil && epoch > 1:
		return k, e.rotate(ctx, k, r)
	case err == nil:
		return e.initialised(ctx, k, r)
	case !errors.Is(err, ErrMount):
		return nil, err
	case epoch > 1:
		return e.next(ctx, r, keeper, epoch)
	}
	exists, err := repository.Exists(ctx, e.Store)
	if err != nil || exists {
		return nil, err
	}
	if k, err = keys.Generate(); err != nil {
		return nil, err
	}
	if err := keep(ctx, keeper, k); err != nil {
		return nil, err
	}
	return k, repository.Init(ctx, e.Store, k, r)
}

func (e Env) initialised(ctx context.Context, k *repository.Keys, r repository.Recipients) (*repository.Keys, error) {
	err := repository.Init(ctx, e.Store, k, r)
	if errors.Is(err, repository.ErrForeign) {
		return nil, nil // made elsewhere; good for restores
	}
	return k, err
}

func keep(ctx context.Context, keeper KeyKeeper, k *repository.Keys) error {
	err := keeper.Keep(ctx, k.Secret())
	if errors.Is(err, ErrKeysExist) { // of an earlier try, made after this pod's mounts
		return fmt.Errorf("%w to find them mounted: %w", ErrStartAgain, err)
	}
	if err != nil {
		return fmt.Errorf("keep the new keys: %w", err)
	}
	return nil
}

// next makes keys that follow those of the epoch before, keeps them, and makes them known.
func (e Env) next(ctx context.Context, r repository.Recipients, keeper KeyKeeper, epoch uint32) (*repository.Keys, error) {
	before, err := keysIn(e.Paths.PreviousKeys)
	if errors.Is(err, ErrMount) {
		return nil, nil // neither is here: good for restores
	}
	if err != nil {
		return nil, err
	}
	if before.Epoch() != epoch-1 {
		return nil, fmt.Errorf("%w: the keys before epoch %d are of epoch %d", keys.ErrSecret, epoch, before.Epoch())
	}
	k, err := before.Next()
	if err != nil {
		return nil, err
	}
	if err := keep(ctx, keeper, k); err != nil {
		return nil, err
	}
	return k, keys.Rotate(ctx, e.Store, before, k, r)
}

// rotate makes kept keys known, which an earlier pod may not have come to. The keys before are needed only for that.
func (e Env) rotate(ctx context.Context, k *repository.Keys, r repository.Recipients) error {
	before, err := keysIn(e.Paths.PreviousKeys)
	if errors.Is(err, ErrMount) {
		return repository.Init(ctx, e.Store, k, r)
	}
	if err != nil {
		return err
	}
	return keys.Rotate(ctx, e.Store, before, k, r)
}
