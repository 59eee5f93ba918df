package repository

import (
	"context"
	"io"

	"golang.org/x/time/rate"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// pacePiece is how much is read between two looks at the rate.
const pacePiece = 1 << 20

// pacedStore is a store that is read no faster than its rate, by all who read at once.
type pacedStore struct {
	objectstore.Store
	rate *rate.Limiter
}

// paced is r itself without a bound, and otherwise the same repository read at that rate.
func (r *Repository) paced(bytesPerSecond int64) *Repository {
	if bytesPerSecond <= 0 {
		return r
	}
	out := r.over(&pacedStore{r.store, rate.NewLimiter(rate.Limit(bytesPerSecond), pacePiece)})
	r.trustMu.Lock()
	defer r.trustMu.Unlock()
	out.handed, out.known = r.handed, r.known
	return out
}

func (s *pacedStore) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	body, err := s.Store.Open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	return &pacedBody{body, ctx, s.rate}, nil
}

type pacedBody struct {
	io.ReadCloser
	ctx  context.Context
	rate *rate.Limiter
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), pacePiece)])
	if waited := b.rate.WaitN(b.ctx, n); waited != nil { // for what came: a connection yields little at a time
		return n, waited
	}
	return n, err
}
