package mover

import (
	"context"
	"io"

	"golang.org/x/time/rate"
)

// readBurst is how much of a volume is read at once under a limit.
const readBurst = 1 << 20

// pacedReader reads a volume no faster than limit allows, and not at all once ctx has ended.
type pacedReader struct {
	ctx    context.Context
	source io.ReaderAt
	limit  *rate.Limiter
}

// paced is source itself where there is no limit.
func paced(ctx context.Context, source io.ReaderAt, limit *rate.Limiter) io.ReaderAt {
	if limit == nil {
		return source
	}
	return &pacedReader{ctx, source, limit}
}

func newReadLimit(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), readBurst)
}

func (r *pacedReader) ReadAt(p []byte, offset int64) (int, error) {
	for left := len(p); left > 0; left -= readBurst {
		if err := r.limit.WaitN(r.ctx, min(left, readBurst)); err != nil {
			return 0, err
		}
	}
	return r.source.ReadAt(p, offset)
}
