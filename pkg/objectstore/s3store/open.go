package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	return s.open(ctx, &reader{key: key, pos: offset, end: offset + length}, length)
}

func (s *Store) open(ctx context.Context, r *reader, length int64) (io.ReadCloser, error) {
	if err := objectstore.CheckKey(r.key); err != nil {
		return nil, err
	}
	if r.pos < 0 {
		return nil, fmt.Errorf("open %q at %d: %w", r.key, r.pos, objectstore.ErrShort)
	}
	r.ctx, r.store = ctx, s
	if length < 0 {
		r.end = -1
	}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("open %q%s at %d: %w", r.key, ofVersion(r.version), r.pos, err)
	}
	return r, nil
}

// reader reads one range of one version of an object, over as many connections
// as that takes.
type reader struct {
	ctx     context.Context
	store   *Store
	key     string
	version string // empty for the latest
	etag    string
	pos     int64 // of the next byte
	end     int64 // behind the last byte; -1 until the first answer tells the object's end
	body    io.ReadCloser
	fails   int // connections in a row that broke without a byte
}

// open begins the read. A range of no bytes cannot be asked for in HTTP; there, and
// where the server has nothing from offset on, Stat decides.
func (r *reader) open() error {
	if r.pos != r.end {
		err := r.store.try(r.ctx, r.request)
		if !errors.Is(err, objectstore.ErrShort) || r.end >= 0 {
			return err
		}
	}
	info, err := r.store.StatVersion(r.ctx, r.key, r.version)
	if err != nil {
		return err
	}
	if info.Size < r.pos || r.end < 0 && info.Size > r.pos {
		return fmt.Errorf("%w: it has %d bytes", objectstore.ErrShort, info.Size)
	}
	r.end, r.body = r.pos, http.NoBody
	return nil
}

// request asks for the rest of the range and checks that this is what comes.
func (r *reader) request() error {
	body, info, header, err := r.store.core.GetObject(r.ctx, r.store.bucket, r.store.object(r.key), r.options())
	if err != nil {
		return err
	}
	if err := r.check(info, header); err != nil {
		body.Close()
		return err
	}
	if r.end < 0 {
		r.end = r.pos + info.Size
	}
	r.body, r.etag = body, info.ETag
	return nil
}

func (r *reader) options() minio.GetObjectOptions {
	opt := minio.GetObjectOptions{VersionID: r.version, ServerSideEncryption: r.store.sse}
	switch {
	case r.end >= 0:
		opt.Set("Range", fmt.Sprintf("bytes=%d-%d", r.pos, r.end-1))
	case r.pos > 0:
		opt.Set("Range", fmt.Sprintf("bytes=%d-", r.pos))
	}
	if r.etag != "" {
		opt.Set("If-Match", `"`+r.etag+`"`)
	}
	return opt
}

func (r *reader) check(info minio.ObjectInfo, header http.Header) error {
	if info.Size < 0 {
		return fmt.Errorf("%w: the server does not say how much it sends", objectstore.ErrCorrupted)
	}
	got := header.Get("Content-Range")
	if r.end < 0 && r.pos == 0 {
		return nil
	}
	if !strings.HasPrefix(got, fmt.Sprintf("bytes %d-", r.pos)) {
		return fmt.Errorf("%w: asked for bytes from %d, the server sends %q", objectstore.ErrCorrupted, r.pos, got)
	}
	if r.end >= 0 && info.Size != r.end-r.pos {
		return fmt.Errorf("%w: asked for %d bytes from %d, the server has %q", objectstore.ErrShort, r.end-r.pos, r.pos, got)
	}
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		n, err := r.body.Read(p)
		r.pos += int64(n)
		switch {
		case n > 0:
			r.fails = 0
			return n, nil
		case r.pos == r.end:
			return 0, io.EOF
		case err == nil:
			return 0, nil
		}
		if err := r.resume(err); err != nil {
			return 0, fmt.Errorf("read %q at %d: %w", r.key, r.pos, err)
		}
	}
}

// resume opens a new connection behind the last byte that came.
func (r *reader) resume(broke error) error {
	r.body.Close()
	r.body = http.NoBody
	r.fails++
	if ended := r.ctx.Err(); ended != nil {
		return ended
	}
	if r.fails >= r.store.tries {
		return fmt.Errorf("%w: the connection broke %d times without a byte: %w", objectstore.ErrUnreachable, r.fails, broke)
	}
	if r.fails > 1 {
		if err := wait(r.ctx, r.fails); err != nil {
			return err
		}
	}
	err := r.store.try(r.ctx, r.request)
	if errors.Is(err, objectstore.ErrExists) { // If-Match does not hold
		return fmt.Errorf("%w: the object was replaced while it was read", objectstore.ErrCorrupted)
	}
	return err
}

func (r *reader) Close() error {
	return r.body.Close()
}
