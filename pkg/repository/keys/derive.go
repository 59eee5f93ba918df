package keys

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Origin is the attempt of a run that sealed something. Attempts count from 1:
// each start of a writer takes the next, so that no key ever seals two things.
type Origin struct {
	Run     ID
	Attempt uint16
}

// Purpose separates derived keys. The texts are part of the format.
type Purpose string

// The purposes: of the name key, of the index key, of both together, of a data key.
const (
	PurposeName  Purpose = "name"
	PurposeOwner Purpose = "owner"

	PurposeContent     Purpose = "content-id"
	PurposeFingerprint Purpose = "fingerprint-gmac"
	PurposeHide        Purpose = "fingerprint-hmac"
	PurposeNodeHash    Purpose = "node-hash"
	PurposeNode        Purpose = "node"
	PurposePackTag     Purpose = "pack-tag"
	PurposeCommit      Purpose = "commit"

	PurposeEpoch Purpose = "epoch-commitment"

	PurposeFrame      Purpose = "frame"
	PurposeCommitment Purpose = "data-key-commitment"
)

// Derive is HKDF-SHA-256 of secret with the repository as salt and, as info, the
// text "vmstate/v1/", the purpose, a zero byte and context.
func Derive(secret []byte, repository ID, p Purpose, context []byte) [32]byte {
	info := "vmstate/v1/" + string(p) + "\x00" + string(context)
	key, err := hkdf.Key(sha256.New, secret, repository[:], info, 32)
	if err != nil {
		panic(fmt.Sprintf("hkdf of 32 bytes: %v", err)) // only for lengths over 8160
	}
	return [32]byte(key)
}

// AEAD returns AES-256-GCM under key.
func AEAD(key [32]byte) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(fmt.Sprintf("aes with 32 bytes: %v", err)) // only for other lengths
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(fmt.Sprintf("gcm over aes: %v", err)) // only for other block sizes
	}
	return gcm
}

// Set is the index key of one epoch and the name key, as writers and readers hold them.
type Set struct {
	Repository ID
	Epoch      uint32
	index      [32]byte
	name       [32]byte
}

// Set returns the keys of k that seal and name.
func (k *Keys) Set() *Set {
	return &Set{Repository: k.repository, Epoch: k.epoch, index: k.index, name: k.name}
}

// Key derives an index key that is not bound to a run. domain is the chain of backups
// that shares unit ids and fingerprints; the zero ID where it does not matter.
func (s *Set) Key(p Purpose, domain ID) [32]byte {
	return Derive(s.index[:], s.Repository, p, domain[:])
}

// RunKey derives a key that seals for one attempt of one run of one VM.
func (s *Set) RunKey(p Purpose, vm ID, o Origin) [32]byte {
	return Derive(s.index[:], s.Repository, p, originContext(vm, o))
}

// FrameKey derives the key that seals the frames of an attempt from its data key.
func FrameKey(data [32]byte, repository, vm ID, o Origin) [32]byte {
	return Derive(data[:], repository, PurposeFrame, originContext(vm, o))
}

// Commitment tells whether a data key is the one that an attempt used, without
// telling the key.
func Commitment(data [32]byte, repository, vm ID, o Origin) [32]byte {
	return Derive(data[:], repository, PurposeCommitment, originContext(vm, o))
}

func originContext(vm ID, o Origin) []byte {
	c := append(vm[:len(vm):len(vm)], o.Run[:]...)
	return binary.BigEndian.AppendUint16(c, o.Attempt)
}

// VM names the chain of backups of a virtual machine by its UID, the same in every
// epoch.
func (s *Set) VM(uid string) ID { return s.nameOf("vm", uid) }

// Run names the run of one backup of vm by the backup's UID, so that a rerun finds
// its own objects without a list.
func (s *Set) Run(vm ID, backupUID string) ID { return s.nameOf("run", vm.String()+"/"+backupUID) }

func (s *Set) nameOf(kind, text string) ID {
	zero := ID{}
	key := Derive(s.name[:], s.Repository, PurposeName, zero[:])
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(kind + "\x00" + text))
	return ID(h.Sum(nil)[:16])
}

// PayloadBytes is the length of Payload.
const PayloadBytes = 64

// Payload is what the age file of an epoch holds, and what a ticket hands over of it.
func (s *Set) Payload() []byte { return s.payload() }

func (s *Set) payload() []byte { return append(s.index[:len(s.index):len(s.index)], s.name[:]...) }

func (s *Set) commitment() [32]byte {
	zero := ID{}
	return Derive(s.payload(), s.Repository, PurposeEpoch, zero[:])
}
