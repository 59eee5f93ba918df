package s3

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

// cutBody reads n bytes and then does something, once.
type cutBody struct {
	io.ReadCloser
	left int64
	then func()
}

func (c *cutBody) Read(p []byte) (int, error) {
	if c.left <= 0 {
		if c.then != nil {
			c.then()
			c.then = nil
		}
		return c.ReadCloser.Read(p)
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// TestCancelAtAnyByte ends a PUT after each of many lengths of its body: the object is
// there whole or not at all, no upload is left half done, and the call has ended.
func TestCancelAtAnyByte(t *testing.T) {
	srv := Start(t, false)
	const size = 1 << 20
	body := storetest.Bytes(1, size)
	direct := through(t, srv, never)
	whole := 0
	for _, at := range []int64{0, 1, 2, 4095, 4096, 65_535, 65_536, 65_537, 300_000, size / 2, size - 65_536, size - 1, size} {
		ctx, cancel := context.WithCancel(t.Context())
		s := through(t, srv, func(_ http.ResponseWriter, r *http.Request, _ int64, _ http.Handler) bool {
			if r.Method == http.MethodPut {
				r.Body = &cutBody{r.Body, at, cancel}
			}
			return false
		})
		_, err := s.Create(ctx, "p", body)
		cancel()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("ended at byte %d: %v", at, err)
		}
		time.Sleep(20 * time.Millisecond) // what the server still does with it
		got, getErr := objectstore.Get(t.Context(), direct, "p", size)
		switch {
		case getErr == nil && string(got) == string(body):
			whole++
		case !errors.Is(getErr, objectstore.ErrNotFound) || err == nil:
			t.Errorf("ended at byte %d with %v: %d bytes are there, %v", at, err, len(got), getErr)
		}
		if err := direct.Delete(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
	}
	for upload := range srv.client(t).ListIncompleteUploads(t.Context(), bucket, "", true) {
		t.Errorf("left behind: %+v", upload)
	}
	t.Logf("13 PUTs ended, %d of them too late to matter", whole)
}

// TestHangs: a server that stops in the middle of a request or an answer is given up after
// the time of a stall, and asked again.
func TestHangs(t *testing.T) {
	srv := Start(t, false)
	body := storetest.Bytes(1, 1<<20)
	if _, err := through(t, srv, never).Create(t.Context(), "there", body); err != nil {
		t.Fatal(err)
	}
	hang := func(r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-time.After(3 * time.Second): // a body that nobody reads hides that the client has gone
		}
	}
	for name, tc := range map[string]struct {
		fault fault
		tries int
	}{
		"BeforeTheAnswer": {func(_ http.ResponseWriter, r *http.Request, n int64, _ http.Handler) bool {
			if n > 1 {
				return false
			}
			_, _ = io.Copy(io.Discard, r.Body)
			hang(r)
			panic(http.ErrAbortHandler)
		}, 2},
		"InTheBody": {func(_ http.ResponseWriter, r *http.Request, n int64, _ http.Handler) bool {
			if n > 1 {
				return false
			}
			_, _ = io.CopyN(io.Discard, r.Body, 1000)
			hang(r)
			panic(http.ErrAbortHandler)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int64
			opt := srv.Options
			opt.Tries, opt.Stall, opt.Prefix = 4, 600*time.Millisecond, "hangs-"+name
			opt.Endpoint = proxyTo(t, opt.Endpoint, func(w http.ResponseWriter, r *http.Request, n int64, pass http.Handler) bool {
				sent.Store(n)
				return tc.fault(w, r, n, pass)
			})
			s, err := s3store.New(opt)
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := objectstore.CreateOrSame(t.Context(), s, "p", body); err != nil {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			if int(sent.Load()) != tc.tries {
				t.Errorf("%d requests, want %d", sent.Load(), tc.tries)
			}
			t.Logf("%d requests in %s", sent.Load(), time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestSlowAnswer: an answer that takes many times the time of a stall and never is still
// for so long is read to its end, over one connection.
func TestSlowAnswer(t *testing.T) {
	srv := Start(t, false)
	body := storetest.Bytes(1, 1<<20)
	if _, err := through(t, srv, never).Create(t.Context(), "there", body); err != nil {
		t.Fatal(err)
	}
	opt := srv.Options
	opt.Tries, opt.Stall = 4, time.Second
	var sent atomic.Int64
	opt.Endpoint = proxyTo(t, opt.Endpoint, func(w http.ResponseWriter, r *http.Request, n int64, pass http.Handler) bool {
		sent.Store(n)
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(answer.Code)
		for part := range slices.Chunk(answer.Body.Bytes(), len(body)/20) {
			_, _ = w.Write(part)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond)
		}
		return true
	})
	s, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	got, err := objectstore.Get(t.Context(), s, "there", 1<<20)
	if err != nil || string(got) != string(body) || sent.Load() != 1 {
		t.Errorf("%d bytes over %d connections, %v", len(got), sent.Load(), err)
	}
}

// TestSlowDown: a store that refuses what is too much is asked less and gets everything in
// the end, without an error and within the tries of each request.
func TestSlowDown(t *testing.T) {
	srv := Start(t, false)
	var busy, refused, most atomic.Int64
	opt := srv.Options
	opt.Tries = 10
	opt.Endpoint = proxyTo(t, opt.Endpoint, func(w http.ResponseWriter, r *http.Request, _ int64, pass http.Handler) bool {
		n := busy.Add(1)
		defer busy.Add(-1)
		if n > most.Load() {
			most.Store(n)
		}
		if n > 3 {
			refused.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			refuse(http.StatusServiceUnavailable, "SlowDown")(w)
			return true
		}
		time.Sleep(20 * time.Millisecond)
		pass.ServeHTTP(w, r)
		return true
	})
	s, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	const objects = 120
	for i := range objects {
		go func() {
			_, err := s.Create(t.Context(), "p/"+string(rune('a'+i%26))+"/"+string(rune('a'+i/26)), []byte{byte(i)})
			done <- err
		}()
	}
	for range objects {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	// Without a pace 120 at once would be refused 117 times in the first moment alone, and
	// each of their tries again.
	t.Logf("%d objects: %d refusals, at most %d at once", objects, refused.Load(), most.Load())
	if refused.Load() > objects/2 || most.Load() > 16 {
		t.Errorf("%d refusals, %d at once", refused.Load(), most.Load())
	}
}

// TestResume: a backup is killed after each so many packs, again and again, and started
// anew. What is sent in all is the data once, and for each kill at most what lies between
// two checkpoints, here 64 packs of 1 MiB, and what was on its way.
func TestResume(t *testing.T) {
	e := newEngine(t, Start(t, false))
	disk := storetest.Bytes(3, 160<<20)
	e.counter.take()
	kills := 0
	var sent, packs int64
	for _, after := range []int64{90, 60, 1000} {
		ctx, cancel := context.WithCancel(t.Context())
		stop := make(chan struct{})
		go e.cancelAfter(after, cancel, stop)
		result, err := e.backup(ctx, "killed", nil, disk)
		close(stop)
		cancel()
		e.counter.mu.Lock()
		sent += e.counter.bytes["PUT pack"]
		packs += int64(e.counter.seen["PUT pack"])
		e.counter.mu.Unlock()
		e.counter.take()
		if err == nil {
			if err := e.restore(t.Context(), result.CommitRef, disk); err != nil {
				t.Error(err)
			}
			break
		}
		kills++
	}
	again := sent - int64(len(disk))
	bound := int64(kills) * (64 + 3 + 1) << 20
	t.Logf("160 MiB, %d kills: %d packs, %.1f MiB sent again, at most %.0f MiB allowed", kills, packs, float64(again)/(1<<20), float64(bound)/(1<<20))
	if kills < 2 || again > bound {
		t.Errorf("%d kills, %d bytes sent again, allowed are %d", kills, again, bound)
	}
}

// cancelAfter ends a backup once that many packs were sent.
func (e *engine) cancelAfter(packs int64, cancel context.CancelFunc, stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		e.counter.mu.Lock()
		n := e.counter.seen["PUT pack"]
		e.counter.mu.Unlock()
		if int64(n) >= packs {
			cancel()
			return
		}
	}
}
