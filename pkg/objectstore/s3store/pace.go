package s3store

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxRequests is how many requests one Store has under way at most. The caller's
	// own bounds come first: an export has two packs on their way, a restore eight reads.
	maxRequests = 16
	// slowThink and slowTimes make an answer late: that long after the request was sent
	// off, and that many times later than the quickest.
	slowThink = time.Second
	slowTimes = 8
	// maxRetryAfter bounds what a store's Retry-After is believed.
	maxRetryAfter = time.Minute
	// burst is how many bytes pass a limit at once.
	burst = 64 << 10
)

// pace decides how many requests are under way: one more for each round of requests
// that went well, half when the store says that it is too much, three quarters when
// its answers come late (AIMD, as TCP shares a line).
type pace struct {
	mu      sync.Mutex
	limit   float64
	busy    int
	waiting []chan struct{} // the oldest first
	cut     time.Time
	quiet   time.Time // until then nothing is sent
	base    time.Duration
}

func newPace() *pace { return &pace{limit: maxRequests / 2} }

// enter waits until one more request may go.
func (p *pace) enter(ctx context.Context) error {
	p.mu.Lock()
	quiet := time.Until(p.quiet)
	if p.busy < int(p.limit) && len(p.waiting) == 0 && quiet <= 0 {
		p.busy++
		p.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	p.waiting = append(p.waiting, turn)
	p.mu.Unlock()
	p.wake(quiet)
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.waiting {
		if other == turn {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return ctx.Err()
		}
	}
	p.busy-- // it was let in at the same moment
	p.admit()
	return ctx.Err()
}

// wake admits those who wait once the store wants to be asked again.
func (p *pace) wake(in time.Duration) {
	time.AfterFunc(max(in, 0), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.admit()
	})
}

// leave ends a request that began then. refused says that the store answered that it is
// too much.
func (p *pace) leave(began time.Time, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	if refused {
		p.slower(began, 0.5)
	} else {
		p.limit = min(maxRequests, p.limit+1/p.limit)
	}
	p.admit()
}

// admit lets in as many as there is room for.
func (p *pace) admit() {
	for len(p.waiting) > 0 && p.busy < int(p.limit) && !time.Now().Before(p.quiet) {
		close(p.waiting[0])
		p.waiting = p.waiting[1:]
		p.busy++
	}
}

// slower cuts the number, once for all that was under way when it was cut.
func (p *pace) slower(began time.Time, factor float64) {
	if !began.Before(p.cut) {
		p.cut = time.Now()
		p.limit = max(1, p.limit*factor)
	}
}

// answered learns from the time between the end of a request, which began then, and the
// start of its answer.
func (p *pace) answered(began time.Time, think time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.base == 0 || think < p.base {
		p.base = max(think, time.Millisecond)
	}
	if think > slowThink && think > slowTimes*p.base {
		p.slower(began, 0.75)
	}
}

// heard obeys a Retry-After.
func (p *pace) heard(resp *http.Response) {
	if resp.StatusCode != http.StatusServiceUnavailable && resp.StatusCode != http.StatusTooManyRequests {
		return
	}
	after, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := time.Now().Add(min(after, maxRetryAfter)); until.After(p.quiet) {
		p.quiet = until
		p.wake(time.Until(until))
	}
}

// retryAfter reads seconds or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if seconds, err := strconv.Atoi(value); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second, true
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, date.Sub(now)), true
	}
	return 0, false
}

// now tells the number of requests that may be under way, for tests.
func (p *pace) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.limit)
}

// newLimit is a token bucket; nil for no limit.
func newLimit(bytesPerSecond int64) *rate.Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(bytesPerSecond), burst)
}

// limitedBody is the body of a PUT, given out as fast as limit allows. What a retry
// sends again counts again: it is the line that is spared.
type limitedBody struct {
	ctx   context.Context
	body  *bytes.Reader
	limit *rate.Limiter
}

func (l *limitedBody) Read(p []byte) (int, error) {
	n := min(len(p), burst, l.body.Len())
	if n == 0 {
		return l.body.Read(p)
	}
	if err := l.limit.WaitN(l.ctx, n); err != nil {
		return 0, err
	}
	return l.body.Read(p[:n])
}

func (l *limitedBody) Seek(offset int64, whence int) (int64, error) {
	return l.body.Seek(offset, whence)
}

var _ io.ReadSeeker = (*limitedBody)(nil)
