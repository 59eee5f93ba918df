package commit

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

const (
	magicTombstone   = "VMSTTMB1"
	abortedContext   = "vmstate/v1/aborted\x00"
	tombstoneContext = "vmstate/v1/tombstone\x00"
)

// MarkerBytes is the size of every marker.
const MarkerBytes = headerBytes + ed25519.SignatureSize

const tombstoneBytes = headerBytes + 32 + ed25519.SignatureSize

// EncodeAborted returns the marker that forbids a commit: h with attempt 0.
func EncodeAborted(m *keys.MaintenanceKey, h Header) []byte {
	h.Origin.Attempt = 0
	b := h.append(nil, magicAborted)
	return append(b, m.Sign(abortedContext, b)...)
}

// IsMarker reports whether an object in the place of a commit says of itself that it
// is a marker. VerifyAborted tells whether that is true.
func IsMarker(object []byte) bool { return bytes.HasPrefix(object, []byte(magicAborted)) }

// VerifyAborted checks a marker: signed by one of signers, for the place want. Epochs
// are not compared, since a run may be ended under a later one.
func VerifyAborted(object []byte, want Header, signers []ed25519.PublicKey) error {
	if len(object) != MarkerBytes || !IsMarker(object) {
		return fmt.Errorf("%w: not a marker of an ended run", keys.ErrDamaged)
	}
	if err := signedByOne(object, abortedContext, signers); err != nil {
		return err
	}
	h := parseHeader(object)
	want.Epoch, want.Origin.Attempt = h.Epoch, 0
	if h != want {
		return fmt.Errorf("%w: it is the marker of another run", keys.ErrNotAuthentic)
	}
	return nil
}

// EncodeTombstone returns the object that announces the removal of a commit.
func EncodeTombstone(m *keys.MaintenanceKey, h Header, d Digest) []byte {
	h.Origin.Attempt = 0
	b := append(h.append(nil, magicTombstone), d[:]...)
	return append(b, m.Sign(tombstoneContext, b)...)
}

// VerifyTombstone checks a tombstone as VerifyAborted does, and returns the digest of
// the commit that is to be removed.
func VerifyTombstone(object []byte, want Header, signers []ed25519.PublicKey) (Digest, error) {
	var d Digest
	if len(object) != tombstoneBytes || !bytes.HasPrefix(object, []byte(magicTombstone)) {
		return d, fmt.Errorf("%w: not a tombstone", keys.ErrDamaged)
	}
	if err := signedByOne(object, tombstoneContext, signers); err != nil {
		return d, err
	}
	h := parseHeader(object)
	want.Epoch, want.Origin.Attempt = h.Epoch, 0
	if h != want {
		return d, fmt.Errorf("%w: it is the tombstone of another commit", keys.ErrNotAuthentic)
	}
	copy(d[:], object[headerBytes:])
	return d, nil
}

func signedByOne(object []byte, context string, signers []ed25519.PublicKey) error {
	cut := len(object) - ed25519.SignatureSize
	signed := append([]byte(context), object[:cut]...)
	if !slices.ContainsFunc(signers, func(k ed25519.PublicKey) bool { return ed25519.Verify(k, signed, object[cut:]) }) {
		return fmt.Errorf("%w: no maintenance key of the repository has signed it", keys.ErrNotAuthentic)
	}
	return nil
}

const (
	magicDone   = "VMSTDON1"
	doneContext = "vmstate/v1/done\x00"
)

// EncodeDone returns the object that ends the pin of a reader.
func EncodeDone(k *keys.Keys, vm, run keys.ID) []byte {
	b := doneBody(k.Repository(), vm, run)
	return append(b, k.Sign(doneContext, b)...)
}

func doneBody(repository, vm, run keys.ID) []byte {
	return slices.Concat([]byte(magicDone), repository[:], vm[:], run[:])
}

// VerifyDone checks such an object, which signer must have signed for that reader.
func VerifyDone(object []byte, about Session, signer ed25519.PublicKey) error {
	body := doneBody(about.Repository, about.VM, about.Run)
	if len(object) != len(body)+ed25519.SignatureSize || !bytes.HasPrefix(object, []byte(magicDone)) {
		return fmt.Errorf("%w: not the end of a session", keys.ErrDamaged)
	}
	signed := append([]byte(doneContext), object[:len(body)]...)
	if !bytes.HasPrefix(object, body) || !ed25519.Verify(signer, signed, object[len(body):]) {
		return fmt.Errorf("%w: it ends another session, or its signature does not match", keys.ErrNotAuthentic)
	}
	return nil
}
