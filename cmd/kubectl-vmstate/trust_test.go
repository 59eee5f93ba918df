package main

import (
	"context"
	"encoding/base64"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// setupJob plays what a store's setup Job does about proofs.
type setupJob struct {
	cluster    client.Client
	keys       *keys.Keys
	recipients keys.Recipients
	store      *memstore.Store
}

func (j *setupJob) update(ts *testscript.TestScript, name string, change func(*v1alpha1.VMStateStore)) {
	s := &v1alpha1.VMStateStore{}
	ts.Check(j.cluster.Get(context.Background(), client.ObjectKey{Namespace: ts.Getenv("NS"), Name: name}, s))
	change(s)
	ts.Check(j.cluster.Status().Update(context.Background(), s))
}

// challenge STORE IDENTITY writes the challenge for the identity in the file into the store's status, and sets SIGNING_KEY.
func (j *setupJob) challenge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: challenge STORE IDENTITY")
	}
	ids, err := keys.ParseIdentities([]byte(ts.ReadFile(args[1])))
	ts.Check(err)
	recipient := keys.RecipientOf(ids[0])
	j.recipients, err = keys.ParseRecipients([]string{recipient})
	ts.Check(err)
	j.keys, err = keys.Generate()
	ts.Check(err)
	j.store = memstore.New()
	ts.Check(repository.Init(context.Background(), j.store, j.keys, j.recipients))
	challenge, err := j.keys.Challenge(recipient)
	ts.Check(err)
	ts.Setenv("SIGNING_KEY", base64.StdEncoding.EncodeToString(j.keys.SigningKey()))
	j.update(ts, args[0], func(s *v1alpha1.VMStateStore) {
		s.Status.RepositoryID = j.keys.Repository().String()
		s.Status.SigningKey = base64.StdEncoding.EncodeToString(j.keys.SigningKey())
		s.Status.Challenges = []v1alpha1.RecipientChallenge{{Recipient: keys.Fingerprint(recipient), Challenge: challenge}}
	})
}

// answered STORE takes the proof in the store's spec, as the setup Job would.
func (j *setupJob) answered(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answered STORE")
	}
	j.update(ts, args[0], func(s *v1alpha1.VMStateStore) {
		if len(s.Spec.Proofs) != 1 {
			ts.Fatalf("the store has %d proofs", len(s.Spec.Proofs))
		}
		given := s.Spec.Proofs[0]
		p := keys.Proof{Recipient: given.Recipient, MAC: [32]byte(given.Proof), Answer: [32]byte(given.Answer)}
		ts.Check(keys.StoreProof(context.Background(), j.store, j.keys, j.recipients, p))
		s.Status.Proven, s.Status.Challenges = []string{p.Recipient}, nil
	})
}
