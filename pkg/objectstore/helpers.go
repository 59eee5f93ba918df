package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC32C of body, as in Info.
func Checksum(body []byte) uint32 {
	return crc32.Checksum(body, castagnoli)
}

// CreateOrSame is Create for a key whose bytes are settled beforehand: if key is
// taken, it reads the object and succeeds if that holds the same bytes, so that a
// try whose answer was lost can be repeated. ErrExists if it holds others.
func CreateOrSame(ctx context.Context, s Store, key string, body []byte) (Info, error) {
	info, err := s.Create(ctx, key, body)
	if !errors.Is(err, ErrExists) {
		return info, err
	}
	found, getErr := Get(ctx, s, key, int64(len(body)))
	switch {
	case errors.Is(getErr, ErrTooLarge):
		return Info{}, fmt.Errorf("%q holds other bytes: %w", key, err)
	case getErr != nil:
		return Info{}, fmt.Errorf("compare %q: %w", key, getErr)
	case !bytes.Equal(found, body):
		return Info{}, fmt.Errorf("%q holds other bytes: %w", key, err)
	}
	info, err = s.Stat(ctx, key)
	if err != nil {
		return Info{}, fmt.Errorf("compare %q: %w", key, err)
	}
	info.CRC32C = Checksum(body)
	return info, nil
}

// Get reads the whole of key, at most limit bytes; ErrTooLarge if it has more.
func Get(ctx context.Context, s Store, key string, limit int64) ([]byte, error) {
	r, err := s.Open(ctx, key, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%w: %q has more than %d bytes", ErrTooLarge, key, limit)
	}
	return b, nil
}

// GetRange reads exactly length bytes of key from offset; ErrShort if the object
// ends before that.
func GetRange(ctx context.Context, s Store, key string, offset, length int64) ([]byte, error) {
	r, err := s.Open(ctx, key, offset, length)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b := make([]byte, length)
	_, err = io.ReadFull(r, b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %w", ErrShort, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %d bytes at %d of %q: %w", length, offset, key, err)
	}
	return b, nil
}
