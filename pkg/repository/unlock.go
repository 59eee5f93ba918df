package repository

import (
	"context"
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/commit"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
)

// Handed are keys that somebody who could open them has handed over. Each is compared with what the repository's
// signed objects name before it is used.
type Handed struct {
	Epochs map[uint32][keys.PayloadBytes]byte
	Data   map[keys.Origin][32]byte
}

// OpenHanded opens for reading with keys that were handed over instead of an identity. rootKey is as for
// OpenWithIdentities.
func OpenHanded(ctx context.Context, store objectstore.Store, h Handed, rootKey ed25519.PublicKey) (*Repository, error) {
	r, err := open(ctx, store)
	if err != nil {
		return nil, err
	}
	if err := r.pin(rootKey); err != nil {
		return nil, err
	}
	r.handed = &h
	if _, err := r.epoch(ctx, 1); err != nil {
		return nil, err
	}
	return r, nil
}

// handedKey is a data key that was handed over, if it is the one that the backup names.
func (d *dataKeys) handedKey(entry index.DataKey) ([32]byte, error) {
	key, ok := d.repo.handed.Data[entry.Origin]
	if !ok {
		return key, fmt.Errorf("%w: the data key of run %s was not handed over", ErrNoIdentity, entry.Origin.Run)
	}
	return key, d.proven(entry, key)
}

func (d *dataKeys) proven(entry index.DataKey, key [32]byte) error {
	commitment := keys.Commitment(key, d.repo.id, d.vm, entry.Origin)
	if subtle.ConstantTimeCompare(commitment[:], entry.Commitment[:]) != 1 {
		return fmt.Errorf("data key of run %s: %w: it is not the key that the backup names", entry.Origin.Run, ErrNotAuthentic)
	}
	return nil
}

// Proves is ErrNotAuthentic if one of these data keys is not the one that the backup names.
func (r *Repository) Proves(ctx context.Context, c *Commit, data map[keys.Origin][32]byte) error {
	needed, err := r.neededKeys(ctx, c)
	if err != nil {
		return err
	}
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return err
	}
	d := &dataKeys{repo: r, vm: o.header.VM}
	for _, entry := range needed {
		key, ok := data[entry.Origin]
		if !ok {
			continue
		}
		if err := d.proven(entry, key); err != nil {
			return err
		}
	}
	return nil
}

// IndexRequest asks for the index keys of all epochs of the repository in store. restore is what they are for,
// recipient belongs to the asking process.
func IndexRequest(ctx context.Context, store objectstore.Store, restore, recipient string) (*ticket.Request, error) {
	recorder := ticket.NewRecorder(store)
	r, err := open(ctx, recorder)
	if err != nil {
		return nil, err
	}
	request := &ticket.Request{Repository: r.id, Restore: restore, Recipient: recipient}
	for n := uint32(1); ; n++ {
		_, err := objectstore.Get(ctx, recorder, keys.EpochKey(n), maxKeyFile)
		if errors.Is(err, objectstore.ErrNotFound) && n > 1 {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read index keys: %w", readError(err))
		}
		request.Epochs = append(request.Epochs, n)
	}
	if _, err := readAdded(ctx, recorder, "k/"); err != nil {
		return nil, err
	}
	if err := readProofs(ctx, recorder); err != nil {
		return nil, err
	}
	if request.Excerpt = recorder.Excerpt(); !request.Excerpt.Fits(0) {
		return nil, fmt.Errorf("%w: %d key files", ticket.ErrTooMuch, len(request.Excerpt))
	}
	return request, nil
}

// readAdded reads the key files for later recipients under prefix, and says whether there are any.
func readAdded(ctx context.Context, store objectstore.Store, prefix string) (bool, error) {
	found := false
	for info, err := range store.List(ctx, prefix) {
		if err != nil {
			return found, fmt.Errorf("list key files: %w", err)
		}
		if !strings.HasSuffix(info.Key, ".age") || !strings.Contains(info.Key[strings.LastIndex(info.Key, "/"):], "-") {
			continue
		}
		if _, err := objectstore.Get(ctx, store, info.Key, maxKeyFile); err != nil {
			return found, fmt.Errorf("read added key file: %w", readError(err))
		}
		found = true
	}
	return found, nil
}

// readProofs reads what identities have said of the root key: the holder of one can check its own.
func readProofs(ctx context.Context, store objectstore.Store) error {
	for info, err := range store.List(ctx, keys.ProofPrefix) {
		if err != nil {
			return fmt.Errorf("list proofs: %w", err)
		}
		if _, err := objectstore.Get(ctx, store, info.Key, maxKeyFile); err != nil {
			return fmt.Errorf("read proof: %w", readError(err))
		}
	}
	return nil
}

// DataRequests ask for the data keys of one backup, each for as many as fit into it, with all that proves to
// somebody without the store that this backup needs them. restore and recipient are as for IndexRequest.
func (r *Repository) DataRequests(ctx context.Context, c *Commit, restore, recipient string) ([]*ticket.Request, error) {
	recorder := ticket.NewRecorder(r.store)
	needed, err := r.through(recorder).neededKeys(ctx, c)
	if err != nil {
		return nil, err
	}
	added, err := readAdded(ctx, recorder, "k/")
	if err != nil {
		return nil, err
	}
	if err := readProofs(ctx, recorder); err != nil {
		return nil, err
	}
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return nil, err
	}
	p := &pages{base: ticket.Request{
		Repository: r.id, Restore: restore, Recipient: recipient,
		Commit: &ticket.Commit{Key: c.Key, Digest: o.digest}, Excerpt: recorder.Excerpt(),
	}}
	for _, entry := range needed {
		files := ticket.NewRecorder(r.store)
		name := layout.DataKey(o.header.VM, entry.Origin)
		if _, err := objectstore.Get(ctx, files, name, maxKeyFile); err != nil && !errors.Is(err, objectstore.ErrNotFound) {
			return nil, fmt.Errorf("read data key: %w", readError(err))
		}
		if added {
			if _, err := readAdded(ctx, files, strings.TrimSuffix(name, ".age")+"-"); err != nil {
				return nil, err
			}
		}
		if err := readOwn(ctx, files, o, entry); err != nil {
			return nil, err
		}
		if err := p.add(entry.Origin, files.Excerpt()); err != nil {
			return nil, err
		}
	}
	return p.all, nil
}

// readOwn reads the record of the backup that a run was made for: it says of which virtual machine it is. One that is
// gone or cannot be shown says nothing, and the holder is told so.
func readOwn(ctx context.Context, files objectstore.Store, o *opened, entry index.DataKey) error {
	key := ownRecord(o, entry)
	if key == o.ref.Key {
		return nil
	}
	_, err := objectstore.Get(ctx, files, key, commit.MaxObject)
	if err = readError(err); err != nil && !isOfOne(err) && !errors.Is(err, objectstore.ErrNotFound) && !errors.Is(err, ticket.ErrTooMuch) {
		return fmt.Errorf("get %q: %w", key, err)
	}
	return nil
}

// ownRecord is the key of the record of the backup that a run was made for.
func ownRecord(o *opened, entry index.DataKey) string {
	return layout.Commit(o.header.VM, entry.Sequence, entry.Origin.Run)
}

// pages are requests that are being filled.
type pages struct {
	base ticket.Request
	all  []*ticket.Request
}

func (p *pages) add(o keys.Origin, files ticket.Excerpt) error {
	n := len(p.all)
	if n == 0 || !slices.Concat(p.all[n-1].Excerpt, files).Fits(32*len(p.all[n-1].Origins)) {
		next := p.base
		next.Excerpt = slices.Clone(p.base.Excerpt)
		if !slices.Concat(next.Excerpt, files).Fits(32) {
			return fmt.Errorf("%w: the record of the backup and one key file", ticket.ErrTooMuch)
		}
		p.all = append(p.all, &next)
	}
	last := p.all[len(p.all)-1]
	last.Origins, last.Excerpt = append(last.Origins, o), append(last.Excerpt, files...)
	return nil
}

// through is the same repository read by way of another store, from format.json on.
func (r *Repository) through(store objectstore.Store) *Repository {
	return &Repository{
		store: store, format: r.format, id: r.id, keys: r.keys, identities: r.identities, handed: r.handed,
		pinned: r.pinned, known: r.known, epochs: map[uint32]*keys.Epoch{},
	}
}

// neededKeys are the entries of a backup's key table.
func (r *Repository) neededKeys(ctx context.Context, c *Commit) ([]index.DataKey, error) {
	if _, err := keys.ReadFormat(ctx, r.store); err != nil {
		return nil, err
	}
	if _, err := r.epoch(ctx, 1); err != nil {
		return nil, err
	}
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return nil, err
	}
	table, err := index.OpenKeys(ctx, o.nodes(), objects{r.store, o.header.VM}, o.record.Keys)
	if err != nil {
		return nil, fmt.Errorf("read key table: %w", err)
	}
	var out []index.DataKey
	err = table.All(ctx, func(_ uint64, k index.DataKey) error {
		out = append(out, k)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read key table: %w", err)
	}
	return out, nil
}

// Answer is what a holder of an identity may hand over.
type Answer struct {
	Handed
	// Commit is the backup that data keys are asked for, proven by its signature; nil for index keys.
	Commit *Commit
	// RootKey is what it goes back to.
	RootKey ed25519.PublicKey
	// Vouched says that one of the identities itself has proven the root key. Nothing else tells the holder that the
	// request is about the repository that he knows: key files are no secret, and whoever can read a bucket can show
	// them as part of a repository of his own, with the same id, and have them opened for him.
	Vouched bool
	// Unnamed are the runs that no record of their own names any more: it was removed, is lost, or was not shown. They
	// are of the virtual machine whose UID the backup's record tells, and only that record tells its name.
	Unnamed []keys.ID
}

// AnswerTo opens the keys that a request asks for, from what is in it alone. A request for keys that its backup does
// not need is ErrNotAuthentic, as is one that leaves out what is known. rootKey is as for OpenWithIdentities.
func AnswerTo(ctx context.Context, q *ticket.Request, ids []age.Identity, rootKey ed25519.PublicKey, known Known) (*Answer, error) {
	r, err := OpenWithIdentities(ctx, q.Excerpt.Store(), ids, rootKey)
	if err != nil {
		return nil, err
	}
	r.Expect(known)
	if r.id != q.Repository {
		return nil, fmt.Errorf("%w: the request is for repository %s and shows %s", ErrNotAuthentic, q.Repository, r.id)
	}
	a := &Answer{RootKey: r.RootKey(), Handed: Handed{Epochs: map[uint32][keys.PayloadBytes]byte{}, Data: map[keys.Origin][32]byte{}}}
	if a.Vouched, err = keys.CheckProof(ctx, r.store, r.format, ids); err != nil {
		return nil, err
	}
	chain, err := keys.Chain(ctx, r.store, r.format)
	if err != nil {
		return nil, fmt.Errorf("follow the signing keys: %w", err)
	}
	if err := known.Shows(chain); err != nil {
		return nil, err
	}
	for _, n := range q.Epochs {
		e, err := r.epoch(ctx, n)
		if err != nil {
			return nil, err
		}
		a.Epochs[n] = [keys.PayloadBytes]byte(e.Payload())
	}
	if q.Commit == nil {
		return a, nil
	}
	a.Commit, err = r.Commit(ctx, CommitRef{Key: q.Commit.Key, Digest: hex.EncodeToString(q.Commit.Digest[:])})
	if err != nil {
		return nil, err
	}
	return a, r.answerData(ctx, q, a)
}

func (r *Repository) answerData(ctx context.Context, q *ticket.Request, a *Answer) error {
	needed, err := r.neededKeys(ctx, a.Commit)
	if err != nil {
		return err
	}
	o, err := r.readCommit(ctx, a.Commit.CommitRef)
	if err != nil {
		return err
	}
	d := &dataKeys{repo: r, vm: o.header.VM}
	for _, origin := range q.Origins {
		at := slices.IndexFunc(needed, func(k index.DataKey) bool { return k.Origin == origin })
		if at < 0 {
			return fmt.Errorf("%w: the request asks for the key of run %s, which backup %q does not need",
				ErrNotAuthentic, origin.Run, a.Commit.Key)
		}
		if err := r.named(ctx, o, needed[at], a); err != nil {
			return err
		}
		if a.Data[origin], err = d.read(ctx, needed[at]); err != nil {
			return err
		}
	}
	return nil
}

// named is ErrNotAuthentic if a run that a backup names is not of its own chain: a later one's, or one whose own record
// is another virtual machine's. That a key is of the chain at all is in its commitment, which nobody can make without it.
func (r *Repository) named(ctx context.Context, o *opened, entry index.DataKey, a *Answer) error {
	run, key := entry.Origin.Run, ownRecord(o, entry)
	if entry.Sequence > o.header.Sequence {
		return fmt.Errorf("%w: backup %q names run %s, which was made for a later one (%d)", ErrNotAuthentic, o.ref.Key, run, entry.Sequence)
	}
	if key == o.ref.Key {
		return nil
	}
	own, err := r.readCommit(ctx, CommitRef{Key: key})
	switch {
	case errors.Is(err, ErrAborted), err != nil && isOfOne(err), errors.Is(err, objectstore.ErrNotFound):
		if !slices.Contains(a.Unnamed, run) {
			a.Unnamed = append(a.Unnamed, run)
		}
		return nil
	case err != nil:
		return err
	case own.record.VM != o.record.VM:
		theirs, mine := own.record.VM, o.record.VM
		return fmt.Errorf("%w: backup %q says that it is of %s/%s, and names run %s, which is of %s/%s",
			ErrNotAuthentic, o.ref.Key, mine.Namespace, mine.Name, run, theirs.Namespace, theirs.Name)
	default:
		return nil
	}
}
