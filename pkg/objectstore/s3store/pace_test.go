package s3store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPace: refusals halve the number of requests, once for all under way; requests that
// go well raise it by one a round; late answers take a quarter.
func TestPace(t *testing.T) {
	p := newPace()
	if got := p.now(); got != 8 {
		t.Errorf("at first %d", got)
	}
	round := func(refused bool) {
		began := time.Now()
		for range 8 {
			if err := p.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.leave(began, refused)
		}
	}
	round(true)
	if got := p.now(); got != 4 {
		t.Errorf("after many refusals at once %d, want 4", got)
	}
	for range 200 {
		round(false)
	}
	if got := p.now(); got != maxRequests {
		t.Errorf("after 1600 that went well %d, want %d", got, maxRequests)
	}
	for range 10 {
		p.busy++
		p.leave(time.Now(), true)
	}
	if got := p.now(); got != 1 {
		t.Errorf("after ten refusals, one after the other, %d, want 1", got)
	}
	late := newPace()
	late.answered(time.Now(), 20*time.Millisecond)
	late.answered(time.Now(), 900*time.Millisecond) // not yet late
	if got := late.now(); got != 8 {
		t.Errorf("after an answer within a second %d", got)
	}
	late.answered(time.Now(), 2*time.Second)
	if got := late.now(); got != 6 {
		t.Errorf("after a late answer %d, want 6", got)
	}
	slow := newPace()
	slow.answered(time.Now(), 5*time.Second)
	slow.answered(time.Now(), 9*time.Second) // a store that is always slow is not late
	if got := slow.now(); got != 8 {
		t.Errorf("with a slow store %d, want 8", got)
	}
}

// TestPaceBounds: never more than the number are under way, and all get their turn.
func TestPaceBounds(t *testing.T) {
	p := newPace()
	p.limit = 3
	var busy, most, done atomic.Int64
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if err := p.enter(t.Context()); err != nil {
				t.Error(err)
				return
			}
			if n := busy.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Millisecond)
			busy.Add(-1)
			done.Add(1)
			p.leave(time.Now(), done.Load()%50 == 0)
		})
	}
	wg.Wait()
	if done.Load() != 200 || most.Load() > maxRequests || p.busy != 0 {
		t.Errorf("%d done, at most %d at once, %d busy at the end", done.Load(), most.Load(), p.busy)
	}
}

// TestPaceEnded: who gives up leaves no hole.
func TestPaceEnded(t *testing.T) {
	p := newPace()
	p.limit = 1
	if err := p.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error)
	go func() { gaveUp <- p.enter(ctx) }()
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	p.leave(time.Now(), false)
	if err := p.enter(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestRetryAfter: nothing is sent before the store wants to be asked again.
func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 12, 1, 3, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"0": 0, "7": 7 * time.Second, "": -1, "soon": -1, "-1": -1,
		"Tue, 01 Dec 2026 03:00:20 GMT": 20 * time.Second, "Tue, 01 Dec 2026 02:00:00 GMT": 0,
	} {
		got, ok := retryAfter(value, now)
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("Retry-After %q: got %s, %t", value, got, ok)
		}
	}
	p := newPace()
	p.heard(&http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"1"}}})
	began := time.Now()
	if err := p.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(began); waited < 900*time.Millisecond || waited > 5*time.Second {
		t.Errorf("waited %s, want a second", waited)
	}
	p.heard(&http.Response{StatusCode: http.StatusOK, Header: http.Header{"Retry-After": {"100"}}})
	p.leave(time.Now(), false)
	if err := p.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestUploadLimit: a body is given out as fast as allowed, and no longer once nobody waits.
func TestUploadLimit(t *testing.T) {
	body := bytes.Repeat([]byte{1}, 192<<10)
	limit := newLimit(128 << 10)
	began := time.Now()
	n, err := io.Copy(io.Discard, &limitedBody{ctx: t.Context(), body: bytes.NewReader(body), limit: limit})
	if took := time.Since(began); err != nil || n != int64(len(body)) || took < 900*time.Millisecond || took > 5*time.Second {
		t.Errorf("192 KiB at 128 KiB a second, of which 64 go at once: %d bytes in %s, %v", n, took, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := io.Copy(io.Discard, &limitedBody{ctx: ctx, body: bytes.NewReader(body), limit: limit}); err == nil {
		t.Error("the body is given out to the end though nobody waits for it")
	}
}

// TestDenials: the vendors' answers, as they were seen, and some that are about something else.
func TestDenials(t *testing.T) {
	for _, tc := range denialCases {
		if got := denial(tc.answer); !errors.Is(got, tc.want) {
			t.Errorf("%s %q: got %v, want %v", tc.answer.Code, tc.answer.Message, got, tc.want)
		}
	}
}
