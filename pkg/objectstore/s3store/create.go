package s3store

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // Content-MD5 is what some servers verify, not what we trust
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// Checksum is what a server verifies the body of a PUT by.
type Checksum string

const (
	// CRC32C in a header. The cheapest: about 20 GB/s a core.
	CRC32C Checksum = "CRC32C"
	// CRC32CTrailer is a CRC32C behind the body, the way of AWS' own clients. Some
	// servers refuse it (versitygw 1.8.0: BadDigest).
	CRC32CTrailer Checksum = "CRC32CTrailer"
	// SHA256 of the body in the signature, as S3 has always had it. About 1.4 GB/s.
	SHA256 Checksum = "SHA256"
	// ContentMD5 in a header. About 0.6 GB/s.
	ContentMD5 Checksum = "ContentMD5"
	// None: nothing but the size, by a second request.
	None Checksum = "None"
)

// Checksums are all modes, the best first.
var Checksums = [...]Checksum{CRC32C, CRC32CTrailer, SHA256, ContentMD5, None}

func (c Checksum) check() error {
	for _, known := range Checksums {
		if c == known {
			return nil
		}
	}
	return fmt.Errorf("unknown checksum mode %q, known are %q", c, Checksums)
}

func (s *Store) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	info, err := s.store(ctx, key, body, s.put)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("create %q (%d bytes): %w", key, len(body), err)
	}
	return info, nil
}

// Replace is a PUT without a condition: the store itself makes it one step.
func (s *Store) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	info, err := s.store(ctx, key, body, s.putOver)
	if err != nil {
		return objectstore.Info{}, fmt.Errorf("replace %q (%d bytes): %w", key, len(body), err)
	}
	return info, nil
}

// putter sends one PUT.
type putter func(ctx context.Context, key string, body []byte, sums sums) (minio.UploadInfo, error)

func (s *Store) store(ctx context.Context, key string, body []byte, send putter) (objectstore.Info, error) {
	if err := objectstore.CheckCreate(key, body); err != nil {
		return objectstore.Info{}, err
	}
	info := objectstore.Info{Key: key, Size: int64(len(body)), CRC32C: objectstore.Checksum(body)}
	sums := s.sums(body, info.CRC32C)
	err := s.try(ctx, func() error {
		put, err := send(ctx, key, body, sums)
		if err != nil {
			return err
		}
		info.VersionID = version(put.VersionID)
		return confirm(put, info.CRC32C)
	})
	if err == nil && s.checksum == None {
		err = s.confirmSize(ctx, info)
	}
	return info, err
}

// sums are what goes with a body, each as the request wants it.
type sums struct {
	crc32cHeader, md5, sha256 string
}

func (s *Store) sums(body []byte, crc32c uint32) sums {
	switch s.checksum {
	case CRC32C:
		return sums{crc32cHeader: encodeCRC(crc32c)}
	case ContentMD5:
		sum := md5.Sum(body) //nolint:gosec // as above
		return sums{md5: base64.StdEncoding.EncodeToString(sum[:])}
	case SHA256:
		sum := sha256.Sum256(body)
		return sums{sha256: hex.EncodeToString(sum[:])}
	default:
		return sums{}
	}
}

func encodeCRC(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

func (s *Store) put(ctx context.Context, key string, body []byte, sums sums) (minio.UploadInfo, error) {
	opt := s.putOptions(key, sums)
	opt.SetMatchETagExcept("*")
	return s.send(ctx, key, body, sums, opt)
}

func (s *Store) putOver(ctx context.Context, key string, body []byte, sums sums) (minio.UploadInfo, error) {
	return s.send(ctx, key, body, sums, s.putOptions(key, sums))
}

func (s *Store) send(ctx context.Context, key string, body []byte, sums sums, opt minio.PutObjectOptions) (minio.UploadInfo, error) {
	var reader io.Reader = bytes.NewReader(body)
	if s.upload != nil {
		reader = &limitedBody{ctx: ctx, body: bytes.NewReader(body), limit: s.upload}
	}
	return s.core.PutObject(ctx, s.bucket, s.object(key), reader, int64(len(body)), sums.md5, sums.sha256, opt)
}

func (s *Store) putOptions(key string, sums sums) minio.PutObjectOptions {
	// Without DisableContentSha256 the client cuts the body into signed chunks over
	// plain http, at a quarter of the speed.
	opt := minio.PutObjectOptions{DisableMultipart: true, DisableContentSha256: true, ServerSideEncryption: s.sse}
	if s.lock.covers(key) {
		opt.Mode, opt.RetainUntilDate = retentionMode(s.lock.Mode), time.Now().Add(s.lock.For)
	}
	if sums.crc32cHeader != "" {
		opt.UserMetadata = map[string]string{minio.ChecksumCRC32C.Key(): sums.crc32cHeader}
	}
	if s.checksum == CRC32CTrailer {
		opt.Checksum = minio.ChecksumCRC32C
	}
	return opt
}

// confirm compares what the server says that it stored, where it says it.
func confirm(put minio.UploadInfo, crc32c uint32) error {
	if put.ChecksumCRC32C != "" && put.ChecksumCRC32C != encodeCRC(crc32c) {
		return fmt.Errorf("%w: the server stored CRC32C %s, sent was %s", objectstore.ErrCorrupted, put.ChecksumCRC32C, encodeCRC(crc32c))
	}
	return nil
}

func (s *Store) confirmSize(ctx context.Context, want objectstore.Info) error {
	found, err := s.Stat(ctx, want.Key)
	if err != nil {
		return err
	}
	if found.Size != want.Size {
		return fmt.Errorf("%w: the server stored %d bytes, sent were %d", objectstore.ErrCorrupted, found.Size, want.Size)
	}
	return nil
}
