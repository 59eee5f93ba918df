package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

const aboutProve = `Shows that an identity opens what a store's cluster writes, before it is needed, and has the identity vouch for the
repository's signing key.

The challenge in the store's status is opened here; the answer goes into its spec, and from there into the bucket.
After the loss of the cluster the identity itself then tells the true repository from one that somebody has put in its
place. The identity stays here.

Whoever may change the store, or owns the bucket, could show you a repository of his own: you are told first which
store, bucket and signing key it is, and asked. Compare the key with what a second person or place says, or give it
with --signing-key, which is then compared here.`

type proveFlags struct {
	identities  []string
	signingKey  string
	yes, noWait bool
}

func (a *app) proveCommand() *cobra.Command {
	f := &proveFlags{}
	cmd := &cobra.Command{
		Use:   "prove STORE --identity FILE",
		Short: "Show that an identity opens a store's backups, and vouch for its signing key",
		Long:  aboutProve,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.prove(cmd.Context(), args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.identities, "identity", nil, "file with an age identity of one of the store's recipients")
	flags.StringVar(&f.signingKey, "signing-key", "", "the repository's signing key as you keep it: another one is refused, and the same is not asked about")
	flags.BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&f.noWait, "no-wait", false, "return once the answer is handed over")
	return cmd
}

func (a *app) prove(ctx context.Context, name string, f *proveFlags) error {
	ids, err := readIdentities(f.identities)
	if err != nil {
		return err
	}
	c, s, err := a.openStore(ctx, name)
	if err != nil {
		return err
	}
	id, err := keys.ParseID(s.Status.RepositoryID)
	if err != nil {
		return &outcome{kind: errFailed, text: fmt.Sprintf("store %q has no repository yet", name), err: err, hint: "kubectl describe vmstatestore says what keeps it"}
	}
	root, err := base64.StdEncoding.DecodeString(s.Status.SigningKey)
	if err != nil {
		return fmt.Errorf("signing key of store %q: %w", name, err)
	}
	if err := a.agreeToVouch(s, root, f); err != nil {
		return err
	}
	before := s.DeepCopy()
	var proven []string
	for _, identity := range ids {
		of := keys.Fingerprint(keys.RecipientOf(identity))
		at := slices.IndexFunc(s.Status.Challenges, func(c v1alpha1.RecipientChallenge) bool { return c.Recipient == of })
		if at < 0 && !slices.Contains(s.Status.Proven, of) {
			return noChallenge(s, of)
		}
		proven = append(proven, of)
		if at < 0 {
			continue
		}
		p, err := keys.Prove(s.Status.Challenges[at].Challenge, identity, id, root)
		if err != nil {
			return err
		}
		s.Spec.Proofs = slices.DeleteFunc(s.Spec.Proofs, func(p v1alpha1.RootKeyProof) bool { return p.Recipient == of })
		s.Spec.Proofs = append(s.Spec.Proofs, v1alpha1.RootKeyProof{Recipient: of, Proof: p.MAC[:], Answer: p.Answer[:]})
	}
	return a.change(ctx, &storeChange{cluster: c, before: before, after: s, noWait: f.noWait, done: func(s *v1alpha1.VMStateStore) (string, bool) {
		for _, f := range proven {
			if !slices.Contains(s.Status.Proven, f) {
				return "", false
			}
		}
		return fmt.Sprintf("store %s/%s: the identity %s opens its backups, and vouches for the signing key %s",
			s.Namespace, s.Name, strings.Join(proven, ", "), s.Status.SigningKey), true
	}})
}

// agreeToVouch shows what the identity is about to vouch for, for as long as it is used, and asks. A key that the person
// keeps needs no question: it is that one or it is refused.
func (a *app) agreeToVouch(s *v1alpha1.VMStateStore, root []byte, f *proveFlags) error {
	mine, err := (&storeFlags{signingKey: f.signingKey}).rootKey()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(root)
	fmt.Fprintf(a.err, "The identity is about to vouch for this repository:\n  store        %s/%s\n  bucket       %s at %s\n  repository   %s\n  signing key  %s\n  fingerprint  SHA256:%x\n",
		s.Namespace, s.Name, path.Join(s.Spec.S3.Bucket, s.Spec.S3.Prefix), s.Spec.S3.Endpoint, s.Status.RepositoryID, s.Status.SigningKey, sum)
	switch {
	case mine != nil && !bytes.Equal(mine, root):
		return fmt.Errorf("%w: the signing key of store %s/%s is not the one that you gave: nothing was done", repository.ErrNotAuthentic, s.Namespace, s.Name)
	case mine != nil, f.yes:
		return nil
	default:
		return a.confirm("Is that the signing key of your repository?")
	}
}

func noChallenge(s *v1alpha1.VMStateStore, fingerprint string) error {
	var known []string
	for _, r := range s.Spec.Recipients {
		known = append(known, keys.Short(r))
	}
	text := fmt.Sprintf("store %q has no challenge for the identity of %s; its recipients are %s", s.Name, fingerprint, strings.Join(known, ", "))
	return &outcome{kind: errFailed, text: text, err: errFailed, hint: "a store is probed within minutes of a change of its recipients; where its keys are elsewhere, type this there"}
}

const aboutRotate = `Makes new index and signing keys for a store's repository, signed by the ones before. The next backup of every virtual
machine sends all of its data once; what was written before stays readable. Do this when the Secret with the keys may
have been read by somebody, and then tell with kubectl vmstate distrust which backups are still to be believed.`

func (a *app) rotateKeysCommand() *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use:   "rotate-keys STORE",
		Short: "Make new index and signing keys for a store",
		Long:  aboutRotate,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, s, err := a.openStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			before := s.DeepCopy()
			s.Spec.KeyEpoch = max(1, s.Spec.KeyEpoch) + 1
			return a.change(cmd.Context(), &storeChange{cluster: c, before: before, after: s, noWait: noWait, done: func(s *v1alpha1.VMStateStore) (string, bool) {
				return fmt.Sprintf("store %s/%s: keys of epoch %d are in Secret %q; the Secret before is needed by nobody once no backup runs",
					s.Namespace, s.Name, s.Status.KeyEpoch, s.Status.KeysSecretName), s.Status.KeyEpoch == s.Spec.KeyEpoch
			}})
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return once the keys are asked for")
	return cmd
}

const aboutDistrust = `Takes back the trust in the signing key of a key epoch that is over: of all backups that it has signed, only those
named with --last-good and the ones before them in their chains are still believed, by this cluster and by everybody
who reads the bucket. Backups of virtual machines that are not named are refused. kubectl vmstate rotate-keys comes
first: the new key signs this. Said again for the same epoch, the last word counts.`

func (a *app) distrustCommand() *cobra.Command {
	var epoch int64
	var good []string
	var yes, noWait bool
	cmd := &cobra.Command{
		Use:   "distrust STORE --epoch N --last-good BACKUP",
		Short: "Believe only some of the backups that a lost signing key has signed",
		Long:  aboutDistrust,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, s, err := a.openStore(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			said, err := a.distrust(cmd.Context(), c, s, epoch, good)
			if err != nil {
				return err
			}
			if !yes {
				if err := a.confirm(fmt.Sprintf("All other backups of epoch %d are refused from now on. Go on?", epoch)); err != nil {
					return err
				}
			}
			before := s.DeepCopy()
			s.Spec.Distrust = slices.DeleteFunc(s.Spec.Distrust, func(d v1alpha1.EpochDistrust) bool { return d.Epoch == epoch })
			s.Spec.Distrust = append(s.Spec.Distrust, said)
			return a.change(cmd.Context(), &storeChange{cluster: c, before: before, after: s, noWait: noWait, done: func(s *v1alpha1.VMStateStore) (string, bool) {
				return fmt.Sprintf("store %s/%s: of epoch %d, %d backups and those before them are believed", s.Namespace, s.Name, epoch, len(said.LastGood)),
					s.Status.ObservedGeneration >= s.Generation
			}})
		},
	}
	flags := cmd.Flags()
	flags.Int64Var(&epoch, "epoch", 0, "key epoch whose signing key is distrusted")
	flags.StringSliceVar(&good, "last-good", nil, "VMStateBackup that is the last good one of its virtual machine; once for each machine")
	flags.BoolVarP(&yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&noWait, "no-wait", false, "return once it is asked for")
	return cmd
}

// distrust names the last good backups by what is in the store.
func (a *app) distrust(ctx context.Context, c *connection, s *v1alpha1.VMStateStore, epoch int64, good []string) (v1alpha1.EpochDistrust, error) {
	said := v1alpha1.EpochDistrust{Epoch: epoch, LastGood: []v1alpha1.GoodCommit{}}
	if epoch < 1 || epoch >= max(1, s.Status.KeyEpoch) {
		return said, usagef("--epoch is a key epoch that is over; the store's keys are of epoch %d: kubectl vmstate rotate-keys %s comes first",
			max(1, s.Status.KeyEpoch), s.Name)
	}
	for _, name := range good {
		b := &v1alpha1.VMStateBackup{}
		if err := c.Get(ctx, c.key(name), b); err != nil {
			return said, fmt.Errorf("get backup %q: %w", name, err)
		}
		if b.Status.Export == nil || b.Status.Export.Commit == nil || b.Spec.StoreRef == nil || b.Spec.StoreRef.Name != s.Name {
			return said, usagef("backup %q is not in store %q", name, s.Name)
		}
		said.LastGood = append(said.LastGood, v1alpha1.GoodCommit{Key: b.Status.Export.Commit.Key, Digest: b.Status.Export.Commit.Digest})
		view := viewOf(b)
		a.note("last good backup of %s: %s, taken %s", b.Spec.VMName, name, view.taken())
	}
	return said, nil
}

func (a *app) openStore(ctx context.Context, name string) (*connection, *v1alpha1.VMStateStore, error) {
	c, err := a.cluster.connect()
	if err != nil {
		return nil, nil, err
	}
	s := &v1alpha1.VMStateStore{}
	if err := c.Get(ctx, c.key(name), s); err != nil {
		return nil, nil, fmt.Errorf("get store %q: %w", name, err)
	}
	return c, s, nil
}

// storeChange is a change of a store's spec, and how to see that it has been done.
type storeChange struct {
	cluster       *connection
	before, after *v1alpha1.VMStateStore
	noWait        bool
	// done tells what has come of it, and whether that is so yet.
	done func(*v1alpha1.VMStateStore) (string, bool)
}

func (a *app) change(ctx context.Context, change *storeChange) error {
	s := change.after
	if err := change.cluster.Patch(ctx, s, client.MergeFromWithOptions(change.before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("change store %q: %w", s.Name, err)
	}
	if change.noWait {
		a.hint("kubectl get vmstatestore %s -n %s -o yaml shows when it is done", s.Name, s.Namespace)
		return nil
	}
	for {
		if why := stuck(s); why != "" {
			return &outcome{kind: errFailed, text: why, err: errFailed, hint: "kubectl describe vmstatestore lists the findings"}
		}
		if text, done := change.done(s); done {
			a.note("%s", text)
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("stopped waiting; the store goes on in the cluster"), ctx.Err())
		case <-time.After(pollInterval):
		}
		if err := change.cluster.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return fmt.Errorf("get store %q: %w", s.Name, err)
		}
	}
}

// stuck says why a store that has looked at its spec did not do what it asks for.
func stuck(s *v1alpha1.VMStateStore) string {
	if s.Status.ObservedGeneration < s.Generation {
		return ""
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionWritable} {
		if c := meta.FindStatusCondition(s.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse && c.Reason != v1alpha1.ReasonProbing {
			return fmt.Sprintf("store %s/%s: %s: %s", s.Namespace, s.Name, c.Reason, c.Message)
		}
	}
	for _, f := range s.Status.Findings {
		if f.Outcome != v1alpha1.FindingOK && (strings.HasPrefix(f.Check, "Proof ") || strings.HasPrefix(f.Check, "Distrust ")) {
			return fmt.Sprintf("store %s/%s: %s: %s", s.Namespace, s.Name, f.Check, f.Message)
		}
	}
	return ""
}
