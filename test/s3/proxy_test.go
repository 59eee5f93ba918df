package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

// fault takes the place of the server for one request, or returns false to let it
// pass. n counts the requests from 1.
type fault func(w http.ResponseWriter, r *http.Request, n int64, pass http.Handler) bool

// through returns a store that reaches srv through a proxy with a fault.
func through(t *testing.T, srv *Server, f fault) *s3store.Store {
	t.Helper()
	opt := srv.Options
	opt.Endpoint = proxy(t, srv, f)
	opt.Tries = 4
	s, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func proxy(t *testing.T, srv *Server, f fault) string {
	t.Helper()
	return proxyTo(t, srv.Options.Endpoint, f)
}

func proxyTo(t *testing.T, endpoint string, f fault) string {
	t.Helper()
	front := httptest.NewServer(handlerTo(t, endpoint, f))
	t.Cleanup(front.Close)
	return front.URL
}

func handlerTo(t *testing.T, endpoint string, f fault) http.Handler {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // it is signed
	}}
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f(w, r, n.Add(1), pass) {
			pass.ServeHTTP(w, r)
		}
	})
}

// refuse answers as S3 does, with a code.
func refuse(status int, code string) func(w http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>injected</Message></Error>", code)
	}
}

// A GET that breaks in the middle goes on where it broke; one that never gets
// further ends with an error.
func TestReadOverBrokenConnections(t *testing.T) {
	srv := Start(t, false)
	body := storetest.Bytes(1, 1<<20)
	var ranges []string
	cut := func(after int) fault {
		return func(w http.ResponseWriter, r *http.Request, _ int64, pass http.Handler) bool {
			if r.Method != http.MethodGet {
				return false
			}
			ranges = append(ranges, r.Header.Get("Range"))
			answer := httptest.NewRecorder()
			pass.ServeHTTP(answer, r)
			for k, v := range answer.Header() {
				w.Header()[k] = v
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes()[:min(after, answer.Body.Len())])
			panic(http.ErrAbortHandler)
		}
	}
	if _, err := through(t, srv, never).Create(t.Context(), "p0", body); err != nil {
		t.Fatal(err)
	}
	got, err := objectstore.GetRange(t.Context(), through(t, srv, cut(300_000)), "p0", 1000, 1_000_000)
	if err != nil || !bytes.Equal(got, body[1000:1_001_000]) {
		t.Errorf("read over connections that break each 300000 bytes: %d bytes, %v; ranges asked for: %q", len(got), err, ranges)
	}
	if _, err := objectstore.Get(t.Context(), through(t, srv, cut(0)), "p0", 1<<20); !errors.Is(err, objectstore.ErrUnreachable) {
		t.Errorf("read over connections that bring nothing: got %v, want ErrUnreachable", err)
	}
}

func never(http.ResponseWriter, *http.Request, int64, http.Handler) bool { return false }

// The object is deleted and made anew with other bytes while it is read.
func TestReadOfReplacedObject(t *testing.T) {
	srv := Start(t, false)
	direct := through(t, srv, never)
	if _, err := direct.Create(t.Context(), "p0", storetest.Bytes(1, 1<<20)); err != nil {
		t.Fatal(err)
	}
	s := through(t, srv, func(w http.ResponseWriter, r *http.Request, n int64, pass http.Handler) bool {
		if n > 1 {
			return false
		}
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		_, _ = w.Write(answer.Body.Bytes()[:100_000])
		panic(http.ErrAbortHandler)
	})
	r, err := s.Open(t.Context(), "p0", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := direct.Delete(t.Context(), "p0"); err != nil {
		t.Fatal(err)
	}
	if _, err := direct.Create(t.Context(), "p0", storetest.Bytes(2, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, objectstore.ErrCorrupted) {
		t.Errorf("got %v, want ErrCorrupted", err)
	}
}

// A server that ignores Range would have the wrong bytes taken for the right ones.
func TestReadFromServerWithoutRanges(t *testing.T) {
	srv := Start(t, false)
	if _, err := through(t, srv, never).Create(t.Context(), "p0", storetest.Bytes(1, 1000)); err != nil {
		t.Fatal(err)
	}
	s := through(t, srv, func(w http.ResponseWriter, _ *http.Request, _ int64, _ http.Handler) bool {
		w.Header().Set("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT")
		_, _ = w.Write(storetest.Bytes(1, 100))
		return true
	})
	if _, err := objectstore.GetRange(t.Context(), s, "p0", 10, 100); !errors.Is(err, objectstore.ErrCorrupted) {
		t.Errorf("got %v, want ErrCorrupted", err)
	}
}

// The answer to a PUT is lost: the next try meets its own object, and CreateOrSame
// knows it for its own.
func TestCreateWithLostAnswer(t *testing.T) {
	srv := Start(t, false)
	lose := func(_ http.ResponseWriter, r *http.Request, n int64, pass http.Handler) bool {
		if r.Method != http.MethodPut || n > 1 {
			return false
		}
		pass.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	if _, err := through(t, srv, lose).Create(t.Context(), "a", []byte("x")); !errors.Is(err, objectstore.ErrExists) {
		t.Errorf("Create: got %v, want ErrExists", err)
	}
	if _, err := objectstore.CreateOrSame(t.Context(), through(t, srv, lose), "b", []byte("x")); err != nil {
		t.Errorf("CreateOrSame: %v", err)
	}
}

// What the server answers decides whether a request is tried again, and what it is called.
func TestAnswers(t *testing.T) {
	srv := Start(t, false)
	for name, tc := range map[string]struct {
		answer func(http.ResponseWriter)
		tries  int64 // that get this answer; the next one passes
		want   error
		sent   int64
	}{
		"SlowDownOnce":  {refuse(503, "SlowDown"), 1, nil, 2},
		"InternalTwice": {refuse(500, "InternalError"), 2, nil, 3},
		"BadDigestOnce": {refuse(400, "BadDigest"), 1, nil, 2},
		"Always503":     {refuse(503, "ServiceUnavailable"), 100, objectstore.ErrUnreachable, 4},
		"Full":          {refuse(507, "InsufficientStorage"), 100, objectstore.ErrFull, 1},
		"Quota":         {refuse(403, "QuotaExceeded"), 100, objectstore.ErrFull, 1},
		"Skewed":        {refuse(403, "RequestTimeTooSkewed"), 100, objectstore.ErrClockSkew, 1},
		"Denied":        {refuse(403, "AccessDenied"), 100, objectstore.ErrDenied, 1},
		"NotAnS3Server": {func(w http.ResponseWriter) { http.Error(w, "<html>nginx", 404) }, 100, objectstore.ErrNotFound, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var sent int64
			s := through(t, srv, func(w http.ResponseWriter, r *http.Request, n int64, _ http.Handler) bool {
				sent = n
				if n > tc.tries {
					return false
				}
				_, _ = io.Copy(io.Discard, r.Body)
				tc.answer(w)
				return true
			})
			_, err := s.Create(t.Context(), "answers/"+name, storetest.Bytes(1, 100_000))
			if !errors.Is(err, tc.want) || sent != tc.sent {
				t.Errorf("Create: got %v after %d requests, want %v after %d", err, sent, tc.want, tc.sent)
			}
		})
	}
}

// A server whose clock is wrong, though it takes the requests, is told of.
func TestProbeClock(t *testing.T) {
	srv := Start(t, false)
	opt := srv.Options
	opt.Endpoint = proxy(t, srv, func(w http.ResponseWriter, r *http.Request, _ int64, pass http.Handler) bool {
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		for k, v := range answer.Header() {
			w.Header()[k] = v
		}
		w.Header().Set("Date", "Mon, 30 Nov 2020 00:00:00 GMT")
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
		return true
	})
	for _, f := range probe.Run(t.Context(), s3store.Target(opt)).Findings {
		if f.Check == probe.CheckClock && f.Outcome != probe.Warning {
			t.Errorf("a clock that is years behind: %+v", f)
		}
	}
}
