package mover

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// trust keeps in the store what people say of its keys, and finds out what is said. k are the keys of the repository;
// nil if they are not here.
func (e Env) trust(ctx context.Context, c config.Setup, k *repository.Keys, result *SetupResult) error {
	recipients, err := keys.ParseRecipients(c.Recipients)
	if err != nil {
		return err
	}
	format, err := keys.ReadFormat(ctx, e.Store)
	if err != nil {
		return err
	}
	result.Trust = e.Known
	if k != nil {
		if err := e.say(ctx, c, k, recipients, result); err != nil {
			return err
		}
	}
	if result.Trust, err = keys.Trust(ctx, e.Store, format, k, result.Trust); err != nil {
		return err
	}
	if result.Proven, err = keys.Proven(ctx, e.Store, recipients); err != nil || k == nil {
		return err
	}
	result.Challenges = map[string][]byte{}
	for _, r := range recipients.Strings() {
		if slices.Contains(result.Proven, keys.Fingerprint(r)) {
			continue
		}
		if result.Challenges[keys.Fingerprint(r)], err = k.Challenge(r); err != nil {
			return err
		}
	}
	return nil
}

// say stores proofs and distrust, which result.Trust knows from then on. What cannot be stored because it is not right is
// a finding, and ends nothing.
func (e Env) say(ctx context.Context, c config.Setup, k *repository.Keys, recipients repository.Recipients, result *SetupResult) error {
	format, err := keys.ReadFormat(ctx, e.Store)
	if err != nil {
		return err
	}
	if result.Superseded, err = keys.Superseded(ctx, e.Store, format, k); err != nil {
		return err
	}
	result.Writable = !result.Superseded
	for _, p := range c.Proofs {
		proof := keys.Proof{Recipient: p.Recipient}
		if copy(proof.MAC[:], p.Proof) != 32 || copy(proof.Answer[:], p.Answer) != 32 {
			return fmt.Errorf("%w: proof of %s", ErrTask, p.Recipient)
		}
		if err := result.note("Proof "+p.Recipient, keys.StoreProof(ctx, e.Store, k, recipients, proof)); err != nil {
			return err
		}
	}
	if len(c.Distrust) == 0 {
		return nil
	}
	return e.sayDistrust(ctx, c, k, result)
}

func (e Env) sayDistrust(ctx context.Context, c config.Setup, k *repository.Keys, result *SetupResult) error {
	repo, err := repository.OpenWithKeys(ctx, e.Store, k)
	if err != nil {
		return err
	}
	repo.Expect(result.Trust)
	for _, d := range c.Distrust {
		var good []repository.CommitRef
		for _, g := range d.LastGood {
			good = append(good, repository.CommitRef(g))
		}
		word, err := repo.Distrust(ctx, d.Epoch, good)
		if err == nil {
			result.Trust = result.Trust.With(word)
		}
		if err := result.note(fmt.Sprintf("Distrust %d", d.Epoch), err); err != nil {
			return err
		}
	}
	return nil
}

// note makes a finding of an error that another try will not cure.
func (r *SetupResult) note(check string, err error) error {
	if err == nil || !Final(err) {
		return err
	}
	if errors.Is(err, repository.ErrForeign) || errors.Is(err, repository.ErrNotAuthentic) ||
		errors.Is(err, repository.ErrNoCommit) || errors.Is(err, repository.ErrInvalid) || errors.Is(err, repository.ErrDamaged) {
		r.Probe.Findings = append(r.Probe.Findings, probe.Finding{Check: check, Outcome: probe.Warning, Message: err.Error()})
		return nil
	}
	return err
}
