package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/index"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// maxKeyFile bounds an age file with one data key: 64 hybrid recipients fit.
const maxKeyFile = 256 << 10

// dataKeyBytes is the length of a data key.
const dataKeyBytes = 32

// dataKeys opens the data keys that frames need, each once.
type dataKeys struct {
	repo  *Repository
	vm    keys.ID
	table *index.Entries[index.DataKey]
	// salvages says that a key whose entry in the table cannot be read is taken on trust:
	// seals and content ids prove it as they open.
	salvages bool

	mu     sync.Mutex
	opened map[keys.Origin][32]byte
}

func (r *Repository) openDataKeys(ctx context.Context, o *opened, salvages bool) (*dataKeys, error) {
	if len(r.identities) == 0 && r.handed == nil {
		return nil, ErrNoIdentity
	}
	table, err := index.OpenKeys(ctx, o.nodes(), objects{r.store, o.header.VM}, o.record.Keys)
	if isBroken(err) && salvages {
		table, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read key table: %w", err)
	}
	return &dataKeys{repo: r, vm: o.header.VM, table: table, salvages: salvages, opened: map[keys.Origin][32]byte{}}, nil
}

// get returns a data key that open has opened.
func (d *dataKeys) get(o keys.Origin) [32]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened[o]
}

// open makes the key of a frame available. It is called from one goroutine.
func (d *dataKeys) open(ctx context.Context, f *index.Frame) error {
	d.mu.Lock()
	_, have := d.opened[f.Key]
	d.mu.Unlock()
	if have {
		return nil
	}
	entry, err := d.entry(ctx, f)
	if err != nil {
		return err
	}
	key, err := d.read(ctx, entry)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened[f.Key] = key
	return nil
}

// entry is what the key table says of the key of a frame.
func (d *dataKeys) entry(ctx context.Context, f *index.Frame) (index.DataKey, error) {
	trusted := index.DataKey{Origin: f.Key}
	if d.table == nil {
		return trusted, nil
	}
	entry, ok, err := d.table.Get(ctx, f.KeyOrdinal)
	if err == nil && (!ok || entry.Origin != f.Key) {
		err = fmt.Errorf("%w: it does not name the data key of run %s", ErrDamaged, f.Key.Run)
	}
	if isBroken(err) && d.salvages {
		return trusted, nil
	}
	if err != nil {
		return entry, fmt.Errorf("read key table: %w", err)
	}
	return entry, nil
}

// read opens the key file of an attempt. If that does not open, the files that were
// added for later recipients are listed, and the first that opens to the commitment is
// as good. If none does, a file that is damaged or gone is told before one that is for
// others.
func (d *dataKeys) read(ctx context.Context, entry index.DataKey) ([32]byte, error) {
	if d.repo.handed != nil {
		return d.handedKey(entry)
	}
	name := layout.DataKey(d.vm, entry.Origin)
	key, err := d.try(ctx, name, entry)
	if !isBroken(err) && !errors.Is(err, ErrWrongIdentity) {
		return key, err
	}
	worst, also := err, ""
	for info, err := range d.repo.store.List(ctx, strings.TrimSuffix(name, ".age")+"-") {
		if err != nil {
			return key, fmt.Errorf("list key files: %w", err)
		}
		also += fmt.Sprintf(", nor %q", info.Key)
		key, err = d.try(ctx, info.Key, entry)
		switch {
		case !isBroken(err) && !errors.Is(err, ErrWrongIdentity):
			return key, err
		case isBroken(err) && !isBroken(worst):
			worst = err
		}
	}
	if isBroken(worst) {
		return key, worst
	}
	return key, d.closed(ctx, entry, fmt.Errorf("%w%s", worst, also))
}

func (d *dataKeys) try(ctx context.Context, name string, entry index.DataKey) ([32]byte, error) {
	file, err := objectstore.Get(ctx, d.repo.store, name, maxKeyFile)
	if err != nil {
		return [32]byte{}, fmt.Errorf("read data key: %w", readError(err))
	}
	plain, err := keys.Unwrap(file, d.repo.identities)
	if err != nil {
		return [32]byte{}, fmt.Errorf("data key %q: %w", name, err)
	}
	if len(plain) != dataKeyBytes {
		return [32]byte{}, fmt.Errorf("data key %q: %w: it has %d bytes", name, ErrDamaged, len(plain))
	}
	key := [32]byte(plain)
	if entry.Commitment == [32]byte{} && d.salvages {
		return key, nil
	}
	if err := d.proven(entry, key); err != nil {
		return [32]byte{}, fmt.Errorf("%q: %w", name, err)
	}
	return key, nil
}

// closed says why no identity given opens the key of an attempt. A key file whose recipients were
// altered looks like one that is for others: what the run's commit says of them tells the two apart,
// where it still is there and is of the same attempt.
func (d *dataKeys) closed(ctx context.Context, entry index.DataKey, err error) error {
	o, unread := d.repo.readSigned(ctx, CommitRef{Key: layout.Commit(d.vm, entry.Sequence, entry.Origin.Run)})
	if unread != nil {
		return fmt.Errorf("%w: it is for others, or was altered: its recipients are not known, since its own commit cannot be read", err)
	}
	mine := slices.ContainsFunc(d.repo.identities, func(id age.Identity) bool {
		return slices.Contains(o.record.Recipients, keys.Fingerprint(keys.RecipientOf(id)))
	})
	if mine && o.header.Origin.Attempt == entry.Origin.Attempt {
		return fmt.Errorf("data key %q: %w: it was made for an identity that is given, and does not open", layout.DataKey(d.vm, entry.Origin), ErrDamaged)
	}
	return fmt.Errorf("%w: it opens for the recipients with fingerprints %s", err, strings.Join(slices.Sorted(slices.Values(o.record.Recipients)), ", "))
}
