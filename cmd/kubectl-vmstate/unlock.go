package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover/signingkeys"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
	"github.com/vmstate/vmstate/pkg/restore"
	"github.com/vmstate/vmstate/pkg/store"
)

const aboutUnlock = `Hands the keys of one backup to the restore that waits for them. The identity stays here.

What the restore asks for is checked first: the record of the backup must be signed by the repository's key, and the
keys asked for must be those that this backup needs. You are shown which backup it is and asked. The keys are sealed
to the pod that asks, and to nobody else; they open every frame of the runs that this backup stands on, and no data
of other backups. Index keys are handed over first, which show names, sizes and times of all backups in the repository;
you are asked before that too, unless your identity has vouched for the repository's key or you give it. The command stays until the restore has all it needs: its Jobs ask one after the other.

Whoever may create pods in the restore's namespace could ask in the restore's place; they could read what is restored
there anyway.`

type unlockFlags struct {
	identities []string
	signingKey string
	expires    time.Duration
	yes        bool
}

func (a *app) unlockCommand() *cobra.Command {
	f := &unlockFlags{}
	cmd := &cobra.Command{
		Use:   "unlock RESTORE --identity FILE",
		Short: "Hand the keys of one backup to the restore that waits for them",
		Long:  aboutUnlock,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.cluster.connect()
			if err != nil {
				return err
			}
			return a.unlock(cmd.Context(), c, args[0], f)
		},
	}
	f.register(cmd)
	cmd.Flags().StringSliceVar(&f.identities, "identity", nil, "file with an age identity that opens the backup")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask")
	return cmd
}

func (f *unlockFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.signingKey, "signing-key", "", "the repository's signing key as you keep it; default: what the VMStateStore says")
	flags.DurationVar(&f.expires, "expires", time.Hour, "how long the restore may wait before it takes the keys")
}

// unlocking is the keys' way to one restore.
type unlocking struct {
	app     *app
	cluster *connection
	flags   *unlockFlags
	ids     []age.Identity
	restore *v1alpha1.VMStateRestore
	rootKey []byte
	// known of the signing keys is what a request must show.
	known repository.Known
	// store is the name of the VMStateStore, for people.
	store string
	// agreedIndex says that the person has agreed to hand over index keys.
	agreedIndex bool
	// agreed is the digest of the backup that the person has agreed to.
	agreed string
	// answered are the requests that have their ticket.
	answered map[string]bool
}

func (a *app) unlock(ctx context.Context, c *connection, name string, f *unlockFlags) error {
	ids, err := readIdentities(f.identities)
	if err != nil {
		return err
	}
	u := &unlocking{app: a, cluster: c, flags: f, ids: ids, restore: &v1alpha1.VMStateRestore{}, answered: map[string]bool{}}
	if err := c.Get(ctx, c.key(name), u.restore); err != nil {
		return fmt.Errorf("get restore %q: %w", name, err)
	}
	if u.restore.Spec.IdentitySecretRef != nil {
		return usagef("restore %q has its identity in Secret %q and waits for nobody", name, u.restore.Spec.IdentitySecretRef.Name)
	}
	if u.rootKey, err = u.signingKey(ctx); err != nil {
		return err
	}
	return u.all(ctx)
}

// signingKey is what the backup's signature must go back to: what the person kept counts more than what the cluster
// says, and needs no VMStateStore.
func (u *unlocking) signingKey(ctx context.Context) ([]byte, error) {
	s, err := u.storeObject(ctx)
	if err == nil {
		u.store = s.Name
		if u.known, err = signingkeys.Of(*store.Config(s)); err != nil {
			return nil, fmt.Errorf("status.trust of store %q: %w", s.Name, err)
		}
	}
	switch {
	case u.flags.signingKey != "" && client.IgnoreNotFound(err) == nil:
		return (&storeFlags{signingKey: u.flags.signingKey}).rootKey()
	case err != nil:
		return nil, err
	case s.Status.SigningKey == "":
		return nil, nil
	default:
		return base64.StdEncoding.DecodeString(s.Status.SigningKey)
	}
}

func (u *unlocking) storeObject(ctx context.Context) (*v1alpha1.VMStateStore, error) {
	name, err := u.storeName(ctx)
	if err != nil {
		return nil, err
	}
	s := &v1alpha1.VMStateStore{}
	if err := u.cluster.Get(ctx, u.cluster.key(name), s); err != nil {
		return nil, fmt.Errorf("get store %q: %w", name, err)
	}
	return s, nil
}

func (u *unlocking) storeName(ctx context.Context) (string, error) {
	if ref := u.restore.Spec.Source.StoreRef; ref != nil {
		return ref.Name, nil
	}
	b, err := u.backup(ctx)
	if err != nil {
		return "", err
	}
	if b.Spec.StoreRef == nil {
		return "", usagef("backup %q has no store: its restore needs no keys", b.Name)
	}
	return b.Spec.StoreRef.Name, nil
}

func (u *unlocking) backup(ctx context.Context) (*v1alpha1.VMStateBackup, error) {
	b := &v1alpha1.VMStateBackup{}
	name := u.restore.Spec.Source.BackupRef.Name
	if err := u.cluster.Get(ctx, u.cluster.key(name), b); err != nil {
		return nil, fmt.Errorf("get backup %q: %w", name, err)
	}
	return b, nil
}

// all answers until the restore has all keys, or has ended.
func (u *unlocking) all(ctx context.Context) error {
	resolve, importing := restore.JobNames(u.restore)
	waiting := false
	for {
		if err := u.cluster.Get(ctx, client.ObjectKeyFromObject(u.restore), u.restore); err != nil {
			return fmt.Errorf("get restore %q: %w", u.restore.Name, err)
		}
		if u.restore.Status.CompletedAt != nil {
			return u.ended()
		}
		for _, name := range []string{resolve, importing} {
			done, err := u.job(ctx, name)
			if err != nil {
				return err
			}
			if done && name == importing {
				u.app.note("restore %s/%s has its keys and goes on by itself", u.restore.Namespace, u.restore.Name)
				return u.app.printRestore(u.restore)
			}
		}
		if !waiting && len(u.answered) == 0 {
			u.app.note("waiting until restore %s/%s asks for keys", u.restore.Namespace, u.restore.Name)
			waiting = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

func (u *unlocking) ended() error {
	s := stateOf(u.restore.Status.Conditions)
	if s.failed {
		return failure(fmt.Sprintf("restore %s/%s", u.restore.Namespace, u.restore.Name), s)
	}
	return u.app.printRestore(u.restore)
}

// job answers what a Job asks, and says whether it has all keys.
func (u *unlocking) job(ctx context.Context, name string) (done bool, err error) {
	r := &v1alpha1.VMStateReport{}
	if err := u.cluster.Get(ctx, u.cluster.key(name), r); err != nil {
		return false, client.IgnoreNotFound(err) // not made yet, or removed
	}
	asked := r.Status.Unlock
	switch {
	case r.Status.Unlocked:
		return true, nil
	case asked != nil && u.answered[asked.ID] && asked.Refused != "":
		return false, &outcome{kind: errFailed, text: "the restore does not take the ticket: " + asked.Refused, err: errFailed,
			hint: "the clocks of this machine and the cluster may differ; --expires says how long a ticket is good"}
	case !restore.Waiting(r) || u.answered[asked.ID]:
		return false, nil
	}
	sealed, err := u.answer(ctx, asked)
	if err != nil {
		return false, err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"ticket": v1alpha1.UnlockTicket{Request: asked.ID, Sealed: sealed}}})
	if err != nil {
		return false, err
	}
	if err := u.cluster.Patch(ctx, r, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return false, fmt.Errorf("hand over the keys in report %q: %w", r.Name, err)
	}
	u.answered[asked.ID] = true
	return false, nil
}

// answer checks what is asked for and seals the keys to who asked.
func (u *unlocking) answer(ctx context.Context, asked *v1alpha1.UnlockRequest) ([]byte, error) {
	q, err := ticket.Decode(asked.Request)
	if err != nil {
		return nil, err
	}
	if id := ticket.IDOf(asked.Request); q.Restore != string(u.restore.UID) || id.String() != asked.ID {
		return nil, fmt.Errorf("%w: the request is not restore %q's", repository.ErrNotAuthentic, u.restore.Name)
	}
	found, err := repository.AnswerTo(ctx, q, u.ids, u.rootKey, u.known)
	if err != nil {
		return nil, fmt.Errorf("check what restore %q asks for: %w", u.restore.Name, err)
	}
	if c := found.Commit; c != nil && u.agreed != c.Digest {
		if err := u.asMeant(ctx, c); err != nil {
			return nil, err
		}
		if err := u.agree(found, len(q.Origins)); err != nil {
			return nil, err
		}
		u.agreed = c.Digest
	}
	if found.Commit == nil && !u.agreedIndex {
		if err := u.agreeIndex(found, q); err != nil {
			return nil, err
		}
		u.agreedIndex = true
	}
	t := &ticket.Ticket{Request: ticket.IDOf(asked.Request), Expires: time.Now().Add(u.flags.expires), Epochs: found.Epochs, Data: found.Data}
	return t.Seal(q.Recipient)
}

// asMeant compares the backup whose keys are asked for with what the restore is of.
func (u *unlocking) asMeant(ctx context.Context, c *repository.Commit) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: restore %q asks for the keys of another backup: %s", repository.ErrNotAuthentic, u.restore.Name, fmt.Sprintf(format, args...))
	}
	source := u.restore.Spec.Source
	if source.BackupRef == nil {
		vm := c.VM.Namespace + "/" + c.VM.Name
		if source.Commit != "" && source.Commit != "latest" && !names(source.Commit, c, true) {
			return wrong("%s instead of %s", shortID(c.Digest), source.Commit)
		}
		if vm != source.VM {
			return wrong("one of %s instead of %s", vm, source.VM)
		}
		if known, err := u.knownAs(ctx, c.VM.UID); err != nil || known != "" && known != c.VM.Name {
			return errors.Join(err, wrong("its record says %s, and the virtual machine with its UID is known here as %q", vm, known))
		}
		return nil
	}
	b, err := u.backup(ctx)
	if err != nil {
		return err
	}
	if e := b.Status.Export; e == nil || e.Commit == nil || e.Commit.Digest != c.Digest {
		return wrong("%s is not that of backup %q", shortID(c.Digest), b.Name)
	}
	return nil
}

// knownAs is the name of the virtual machine that the backups of this namespace say has that UID; "" if none does.
func (u *unlocking) knownAs(ctx context.Context, uid string) (string, error) {
	list := &v1alpha1.VMStateBackupList{}
	if err := u.cluster.List(ctx, list, client.InNamespace(u.restore.Namespace)); err != nil {
		return "", fmt.Errorf("list backups: %w", err)
	}
	for i := range list.Items {
		if vm := list.Items[i].Status.VM; vm != nil && string(vm.UID) == uid {
			return list.Items[i].Spec.VMName, nil
		}
	}
	return "", nil
}

// signed says how the root key is known, and whether that needs nobody's judgement. A VMStateStore alone is no proof:
// whoever may create one can name a bucket with a repository of his own, made of the key files of another.
func (u *unlocking) signed(found *repository.Answer) (text string, sure bool) {
	key := base64.StdEncoding.EncodeToString(found.RootKey)
	switch {
	case u.flags.signingKey != "":
		return "signed by the key that you gave", true
	case found.Vouched:
		return "signed by the key that your identity has vouched for", true
	case len(u.rootKey) > 0:
		return fmt.Sprintf("signed by the key that VMStateStore %s/%s shows, which your identity has not vouched for; compare it with your copy: %s",
			u.restore.Namespace, u.store, key), false
	default:
		return "NOT AUTHENTICATED: signed by a key that only the bucket shows; --signing-key tells a true backup from a forged one: " + key, false
	}
}

// agreeIndex asks before index keys leave, unless it is certain whose they are. They open no data.
func (u *unlocking) agreeIndex(found *repository.Answer, q *ticket.Request) error {
	a := u.app
	text, sure := u.signed(found)
	if sure {
		return nil
	}
	fmt.Fprintf(a.err, "Restore %s/%s asks for the index keys of repository %s, %s\n", u.restore.Namespace, u.restore.Name, q.Repository, text)
	fmt.Fprintf(a.err, "  Index keys show the names, sizes and times of all backups in it, and none of their data.\n")
	if u.flags.yes {
		return nil
	}
	return a.confirm("Hand them over?")
}

// agree shows the backup and asks.
func (u *unlocking) agree(found *repository.Answer, runs int) error {
	a, c := u.app, found.Commit
	signed, _ := u.signed(found)
	fmt.Fprintf(a.err, "Restore %s/%s (%s) asks for the keys of this backup:\n", u.restore.Namespace, u.restore.Name, u.restore.Spec.Mode)
	fmt.Fprintf(a.err, "  VM      %s/%s (UID %s)\n  backup  %s/%s\n  taken   %s\n  digest  %s\n  %s\n", c.VM.Namespace, c.VM.Name, c.VM.UID,
		c.Backup.Namespace, c.Backup.Name, stamp(c.Created.UTC()), c.Digest, signed)
	if n := len(found.Unnamed); n > 0 {
		fmt.Fprintf(a.err, "  %d of the runs that it needs have no record of their own any more: they are of the machine with that UID, and this record alone says its name.\n", n)
	}
	fmt.Fprintf(a.err, "  The keys open all data of the runs that it needs, %d or more, and no other backup's.\n", runs)
	if u.flags.yes {
		return nil
	}
	return a.confirm("Hand them over?")
}

// confirm asks a question that only "y" or "yes" answers well.
func (a *app) confirm(question string) error {
	fmt.Fprintf(a.err, "%s [y/N] ", question)
	if a.answers == nil {
		a.answers = bufio.NewReader(a.in) // one, since it reads ahead
	}
	line, err := a.answers.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	default:
		return usagef("not agreed to: nothing was done; --yes agrees beforehand")
	}
}
