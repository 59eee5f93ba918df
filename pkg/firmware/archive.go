package firmware

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// ErrArchive is a set of chunks that is not exactly what Pack made.
var ErrArchive = errors.New("damaged firmware archive")

// A chunk is, numbers big endian:
//
//	8   "VMSFWA1\n"
//	2   number of this chunk, from 0
//	2   number of chunks
//	32  SHA-256 of the whole payload, the same in every chunk of an archive
//	32  digest of the Tree
//	n   this chunk's part of the payload
//	32  SHA-256 of all bytes before
//
// The payload is a tar archive (PAX, entries in path order, attributes as
// SCHILY.xattr records) in one zstd stream, so that a person can open it with
// tail, head, zstd and tar if it must be.
const (
	chunkMagic       = "VMSFWA1\n"
	chunkHeaderBytes = 8 + 2 + 2 + 32 + 32
	chunkExtraBytes  = chunkHeaderBytes + sha256.Size

	// MaxChunkBytes keeps a chunk, in base64 and with its object, below the 1 MiB
	// that a Secret may hold.
	MaxChunkBytes = 880 << 10
	maxChunks     = 1024

	xattrRecord = "SCHILY.xattr."

	// encodeWindow keeps the encoder small: it runs in a pod with little memory.
	encodeWindow = 1 << 20
	// decodeWindow bounds what a forged archive can make the decoder take.
	decodeWindow = 64 << 20
)

// Pack serialises t into chunks of at most MaxChunkBytes. The same tree gives the
// same bytes from the same build.
func Pack(t Tree) ([][]byte, error) {
	return pack(t, MaxChunkBytes)
}

func pack(t Tree, chunkBytes int) ([][]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	payload, err := compress(t)
	if err != nil {
		return nil, err
	}
	parts := slices.Collect(slices.Chunk(payload, chunkBytes-chunkExtraBytes))
	if len(parts) > maxChunks {
		return nil, fmt.Errorf("%w: %d bytes compressed", ErrTooLarge, len(payload))
	}
	tree, err := hex.DecodeString(t.Digest())
	if err != nil {
		return nil, fmt.Errorf("digest of the tree: %w", err)
	}
	sum := sha256.Sum256(payload)
	chunks := make([][]byte, len(parts))
	for i, part := range parts {
		c := make([]byte, 0, chunkExtraBytes+len(part))
		c = append(c, chunkMagic...)
		c = binary.BigEndian.AppendUint16(c, uint16(i))
		c = binary.BigEndian.AppendUint16(c, uint16(len(parts)))
		c = append(append(append(c, sum[:]...), tree...), part...)
		own := sha256.Sum256(c)
		chunks[i] = append(c, own[:]...)
	}
	return chunks, nil
}

func compress(t Tree) ([]byte, error) {
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(encodeWindow))
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	w := tar.NewWriter(z)
	for _, e := range t.Entries {
		if err := writeTar(w, e); err != nil {
			return nil, fmt.Errorf("pack %q: %w", e.Path, err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	return out.Bytes(), nil
}

func writeTar(w *tar.Writer, e Entry) error {
	h := &tar.Header{
		Format: tar.FormatPAX, Typeflag: tar.TypeReg, Name: e.Path, Size: int64(len(e.Content)), Mode: int64(e.Mode),
		Uid: int(e.UID), Gid: int(e.GID), ModTime: time.Unix(0, e.ModTime),
	}
	if e.Type == TypeDirectory {
		h.Typeflag, h.Name = tar.TypeDir, e.Path+"/"
	}
	for name, value := range e.Xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords[xattrRecord+name] = string(value)
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(e.Content)
	return err
}

// Unpack is the inverse of Pack: the chunks of one archive, in any order, and no
// other. maxBytes bounds the files of the tree; 0 means DefaultMaxBytes. The error
// is ErrArchive or ErrTooLarge and names the chunk that is missing, doubled,
// damaged or of another archive.
func Unpack(chunks [][]byte, maxBytes int64) (Tree, error) {
	if maxBytes == 0 {
		maxBytes = DefaultMaxBytes
	}
	payload, tree, err := join(chunks)
	if err != nil {
		return Tree{}, err
	}
	t, err := decompress(payload, maxBytes)
	if err != nil {
		return Tree{}, err
	}
	if err := t.Validate(); err != nil {
		return Tree{}, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if t.Digest() != tree {
		return Tree{}, fmt.Errorf("%w: the tree has digest %s where %s was packed", ErrArchive, t.Digest(), tree)
	}
	return t, nil
}

// join checks the chunks against each other and returns payload and tree digest.
func join(chunks [][]byte) (payload []byte, tree string, err error) {
	if len(chunks) == 0 || len(chunks) > maxChunks {
		return nil, "", fmt.Errorf("%w: %d chunks", ErrArchive, len(chunks))
	}
	parts := make([][]byte, len(chunks))
	for i, c := range chunks {
		n := len(c) - sha256.Size
		if n < chunkHeaderBytes || string(c[:len(chunkMagic)]) != chunkMagic || sha256.Sum256(c[:n]) != [sha256.Size]byte(c[n:]) {
			return nil, "", fmt.Errorf("%w: chunk given as number %d is cut or altered", ErrArchive, i)
		}
		if !bytes.Equal(c[10:chunkHeaderBytes], chunks[0][10:chunkHeaderBytes]) {
			return nil, "", fmt.Errorf("%w: chunk given as number %d is of another archive", ErrArchive, i)
		}
		number, count := int(binary.BigEndian.Uint16(c[8:])), int(binary.BigEndian.Uint16(c[10:]))
		if count != len(chunks) || number >= count {
			return nil, "", fmt.Errorf("%w: chunk %d of %d among %d", ErrArchive, number, count, len(chunks))
		}
		if parts[number] != nil {
			return nil, "", fmt.Errorf("%w: chunk %d of %d twice", ErrArchive, number, count)
		}
		parts[number] = c[chunkHeaderBytes:n]
	}
	payload = slices.Concat(parts...)
	if sha256.Sum256(payload) != [sha256.Size]byte(chunks[0][12:44]) {
		return nil, "", fmt.Errorf("%w: the chunks together have another digest than each says", ErrArchive)
	}
	return payload, hex.EncodeToString(chunks[0][44:chunkHeaderBytes]), nil
}

func decompress(payload []byte, maxBytes int64) (Tree, error) {
	z, err := zstd.NewReader(bytes.NewReader(payload), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(decodeWindow))
	if err != nil {
		return Tree{}, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	defer z.Close()
	var t Tree
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return Tree{}, fmt.Errorf("%w: %w", ErrArchive, err)
		}
		if maxBytes -= h.Size; maxBytes < 0 || len(t.Entries) >= defaultMaxEntries {
			return Tree{}, fmt.Errorf("%w: archive holds more than is allowed", ErrTooLarge)
		}
		e, err := readTar(r, h)
		if err != nil {
			return Tree{}, fmt.Errorf("%w: %q: %w", ErrArchive, h.Name, err)
		}
		t.Entries = append(t.Entries, e)
	}
}

func readTar(r *tar.Reader, h *tar.Header) (Entry, error) {
	e := Entry{Path: strings.TrimSuffix(h.Name, "/"), Type: TypeDirectory, Mode: uint32(h.Mode), UID: uint32(h.Uid), GID: uint32(h.Gid)}
	for name, value := range h.PAXRecords {
		if name, ok := strings.CutPrefix(name, xattrRecord); ok {
			if e.Xattrs == nil {
				e.Xattrs = map[string][]byte{}
			}
			e.Xattrs[name] = []byte(value)
		}
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return e, nil
	case tar.TypeReg:
		e.Type, e.ModTime = TypeFile, h.ModTime.UnixNano()
		content, err := io.ReadAll(io.LimitReader(r, h.Size)) // grows with what is there, not with what the header claims
		if err == nil && int64(len(content)) != h.Size {
			err = io.ErrUnexpectedEOF
		}
		e.Content = content
		return e, err
	default:
		return e, fmt.Errorf("type %q does not belong into an archive", h.Typeflag)
	}
}
