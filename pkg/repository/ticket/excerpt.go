package ticket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/wire"
)

// Piece is a range of one object, or all of it.
type Piece struct {
	Key    string
	Offset int64
	Whole  bool
	Bytes  []byte
}

// Excerpt is part of a store: what was read of it, so that somebody else can read the same. It proves nothing by
// itself; whoever reads from it checks what is read as if it came from the store.
type Excerpt []Piece

func (e Excerpt) append(b []byte) []byte {
	b = wire.AppendInt(b, len(e))
	for _, p := range e {
		b = wire.AppendString(b, p.Key)
		b = wire.AppendBool(b, p.Whole)
		b = wire.AppendInt(b, p.Offset)
		b = wire.AppendBytes(b, p.Bytes)
	}
	return b
}

func takeExcerpt(d *wire.Decoder) Excerpt {
	var e Excerpt
	for range d.Int(maxPieces) {
		if d.Err() != nil {
			return nil
		}
		p := Piece{Key: d.String(objectstore.MaxKeyBytes), Whole: d.Bool(), Offset: d.Int64(), Bytes: d.Bytes(MaxRequest)}
		if p.Offset > math.MaxInt64-MaxRequest {
			d.Fail("piece at %d", p.Offset)
		}
		e = append(e, p)
	}
	return e
}

// size is what the pieces take in a request, some bytes a piece too high.
func (e Excerpt) size() int {
	n := 0
	for _, p := range e {
		n += len(p.Key) + len(p.Bytes) + 24
	}
	return n
}

// errReadOnly: an excerpt takes no objects.
var errReadOnly = fmt.Errorf("%w: an excerpt of a store is only read", objectstore.ErrDenied)

// Store reads from an excerpt. What is not in it is not found.
func (e Excerpt) Store() objectstore.Store { return excerptStore(e) }

type excerptStore Excerpt

func (s excerptStore) Open(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	for _, p := range s {
		if p.Key != key || offset < p.Offset {
			continue
		}
		at, end := offset-p.Offset, int64(len(p.Bytes))
		switch {
		case length < 0 && p.Whole && at <= end:
			return io.NopCloser(bytes.NewReader(p.Bytes[at:])), nil
		case length >= 0 && at <= end && length <= end-at:
			return io.NopCloser(bytes.NewReader(p.Bytes[at : at+length])), nil
		}
	}
	return nil, fmt.Errorf("%w: %q is not in the excerpt", objectstore.ErrNotFound, key)
}

func (s excerptStore) Stat(_ context.Context, key string) (objectstore.Info, error) {
	for _, p := range s {
		if p.Key == key && p.Whole {
			return objectstore.Info{Key: key, Size: int64(len(p.Bytes))}, nil
		}
	}
	return objectstore.Info{}, fmt.Errorf("%w: %q is not in the excerpt", objectstore.ErrNotFound, key)
}

func (s excerptStore) List(_ context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	sizes := map[string]int64{}
	for _, p := range s {
		if p.Whole && strings.HasPrefix(p.Key, prefix) {
			sizes[p.Key] = int64(len(p.Bytes))
		}
	}
	return func(yield func(objectstore.Info, error) bool) {
		for _, key := range slices.Sorted(maps.Keys(sizes)) {
			if !yield(objectstore.Info{Key: key, Size: sizes[key]}, nil) {
				return
			}
		}
	}
}

func (s excerptStore) Create(context.Context, string, []byte) (objectstore.Info, error) {
	return objectstore.Info{}, errReadOnly
}

func (s excerptStore) Delete(context.Context, string) error { return errReadOnly }

// Recorder is a store that takes note of what is read from it.
type Recorder struct {
	objectstore.Store

	mu     sync.Mutex
	pieces map[pieceName]Piece
}

type pieceName struct {
	key            string
	offset, length int64
}

// NewRecorder records what is read of store.
func NewRecorder(store objectstore.Store) *Recorder {
	return &Recorder{Store: store, pieces: map[pieceName]Piece{}}
}

// ErrTooMuch: what was read does not fit into a request.
var ErrTooMuch = errors.New("does not fit into a request for keys")

// Open reads the whole range, so it is for what is small.
func (r *Recorder) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	from, err := r.Store.Open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	body, err := io.ReadAll(io.LimitReader(from, MaxRequest+1))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	if len(body) > MaxRequest {
		return nil, fmt.Errorf("%w: %q", ErrTooMuch, key)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces[pieceName{key, offset, length}] = Piece{Key: key, Offset: offset, Whole: offset == 0 && length < 0, Bytes: body}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// Excerpt is what was read so far, in the order of keys.
func (r *Recorder) Excerpt() Excerpt {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Collect(maps.Values(r.pieces))
	slices.SortFunc(out, func(a, b Piece) int {
		if a.Key != b.Key {
			return strings.Compare(a.Key, b.Key)
		}
		if a.Offset != b.Offset {
			return int(a.Offset - b.Offset)
		}
		return len(a.Bytes) - len(b.Bytes)
	})
	return out
}

// Fits says whether an excerpt leaves room for more in a request.
func (e Excerpt) Fits(more int) bool { return e.size()+more+3*maxText < MaxRequest }
