package s3store

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// newTransport is one pool of connections with room for parallel reads. It speaks
// HTTP/1.1: one stream a connection is faster for bodies of megabytes.
func newTransport(config *tls.Config, stall time.Duration) *http.Transport {
	if stall <= 0 {
		stall = stallTimeout
	}
	dialer := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &stallConn{Conn: conn, stall: stall}, nil
		},
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 15 * time.Second,
		MaxIdleConnsPerHost: 32,
		IdleConnTimeout:     30 * time.Second,
		DisableCompression:  true, // ranges are of the stored bytes
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
}

// stallTimeout ends a connection on which nothing has moved for so long.
const stallTimeout = time.Minute

// stallConn fails once nothing has moved on it for the time of stall in either
// direction. Writing puts the deadline of reading off as well: the answer to a
// large PUT comes only after its body.
type stallConn struct {
	net.Conn
	stall time.Duration
}

func (c *stallConn) Read(p []byte) (int, error) {
	if err := c.Conn.SetReadDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *stallConn) Write(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// clock notes by how much the server's clock differs from ours, and tells pace how
// quickly it answers.
type clock struct {
	next http.RoundTripper
	pace *pace

	mu   sync.Mutex
	skew time.Duration
	seen bool
}

func (c *clock) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := time.Now()
	var written atomic.Int64 // when the whole request was, since sent
	trace := &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { written.Store(int64(time.Since(sent))) }}
	resp, err := c.next.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		return nil, err
	}
	c.pace.answered(sent, time.Since(sent)-time.Duration(written.Load()))
	c.pace.heard(resp)
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		took := time.Since(sent)
		c.mu.Lock()
		defer c.mu.Unlock()
		// Date has whole seconds, cut: half a second more is the best guess.
		c.skew, c.seen = date.Add(500*time.Millisecond).Sub(sent.Add(took/2)), true
	}
	return resp, nil
}

func (c *clock) read() (skew time.Duration, seen bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.skew, c.seen
}
