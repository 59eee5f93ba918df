// Package tpmnv keeps the guest's generation in a TPM's NV memory and seals its
// disk key to that TPM. It works on any connection to a TPM 2.0: /dev/tpmrm0 in
// the guest, swtpm on the host.
//
// The counter is not an orderly one: every increment reaches the TPM's state file
// before the command is answered. All objects are exempt from dictionary-attack
// protection, since a TPM copied from a running guest counts a failed
// authorization at each start.
package tpmnv

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/vmstate/vmstate/test/guest/generation"
)

const (
	counterIndex  = tpm2.TPMHandle(generation.NVCounter)
	identityIndex = tpm2.TPMHandle(generation.NVIdentity)
	scratchIndex  = tpm2.TPMHandle(generation.NVCounter + 2)
	counterBytes  = 8
)

// TPM is a connection to one TPM. Not for concurrent use.
type TPM struct{ conn transport.TPM }

// New returns a TPM on conn; the caller keeps and closes conn.
func New(conn transport.TPM) *TPM { return &TPM{conn: conn} }

// Mark reads identity and counter; nil if the TPM has neither of them, an error if
// it has only one.
func (t *TPM) Mark() (*generation.Mark, error) {
	id, errID := t.read(identityIndex, generation.IdentityBytes)
	n, errN := t.counter(counterIndex)
	if absent(errID) && absent(errN) {
		return nil, nil
	}
	if err := errors.Join(errID, errN); err != nil {
		return nil, fmt.Errorf("read generation from TPM NV: %w", err)
	}
	return &generation.Mark{Identity: hex.EncodeToString(id), Generation: n}, nil
}

// Provision defines identity and counter in a blank TPM and returns the counter's
// first value. That is not always 1: a TPM starts a new counter above every
// counter that it ever had.
func (t *TPM) Provision(identity string) (uint64, error) {
	id, err := hex.DecodeString(identity)
	if err != nil {
		return 0, fmt.Errorf("identity %q: %w", identity, err)
	}
	if err := t.define(identityIndex, tpm2.TPMNTOrdinary, uint16(len(id))); err != nil {
		return 0, fmt.Errorf("define identity: %w", err)
	}
	auth, nv, err := t.handle(identityIndex)
	if err != nil {
		return 0, err
	}
	write := tpm2.NVWrite{AuthHandle: auth, NVIndex: nv, Data: tpm2.TPM2BMaxNVBuffer{Buffer: id}}
	if _, err := write.Execute(t.conn); err != nil {
		return 0, fmt.Errorf("write identity: %w", err)
	}
	if err := t.define(counterIndex, tpm2.TPMNTCounter, counterBytes); err != nil {
		return 0, fmt.Errorf("define counter: %w", err)
	}
	return t.increment(counterIndex)
}

// Increment steps the counter and returns its new value.
func (t *TPM) Increment() (uint64, error) { return t.increment(counterIndex) }

// Scratch steps a counter that is no part of the generation; it changes the TPM's
// state file and nothing else.
func (t *TPM) Scratch() (uint64, error) {
	if _, err := t.counter(scratchIndex); absent(err) {
		if err := t.define(scratchIndex, tpm2.TPMNTCounter, counterBytes); err != nil {
			return 0, fmt.Errorf("define scratch counter: %w", err)
		}
	}
	return t.increment(scratchIndex)
}

// PCR7 returns the first 8 bytes of PCR 7 (Secure Boot policy), SHA-256 bank, hex.
func (t *TPM) PCR7() (string, error) {
	pcr7 := tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{
		Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(7),
	}}}
	r, err := tpm2.PCRRead{PCRSelectionIn: pcr7}.Execute(t.conn)
	if err != nil {
		return "", fmt.Errorf("read PCR 7: %w", err)
	}
	if len(r.PCRValues.Digests) == 0 {
		return "", errors.New("read PCR 7: no SHA-256 bank")
	}
	return hex.EncodeToString(r.PCRValues.Digests[0].Buffer[:8]), nil
}

// absent says whether err means that an NV index is not defined.
func absent(err error) bool { return errors.Is(err, tpm2.TPMRCHandle) }

func (t *TPM) define(index tpm2.TPMHandle, kind tpm2.TPMNT, size uint16) error {
	_, err := tpm2.NVDefineSpace{
		AuthHandle: tpm2.AuthHandle{Handle: tpm2.TPMRHOwner, Auth: tpm2.PasswordAuth(nil)},
		PublicInfo: tpm2.New2B(tpm2.TPMSNVPublic{
			NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, DataSize: size,
			Attributes: tpm2.TPMANV{OwnerWrite: true, OwnerRead: true, AuthWrite: true, AuthRead: true, NT: kind, NoDA: true},
		}),
	}.Execute(t.conn)
	return err
}

func (t *TPM) handle(index tpm2.TPMHandle) (tpm2.AuthHandle, tpm2.NamedHandle, error) {
	r, err := tpm2.NVReadPublic{NVIndex: index}.Execute(t.conn)
	if err != nil {
		return tpm2.AuthHandle{}, tpm2.NamedHandle{}, fmt.Errorf("NV index %#x: %w", uint32(index), err)
	}
	return tpm2.AuthHandle{Handle: index, Name: r.NVName, Auth: tpm2.PasswordAuth(nil)},
		tpm2.NamedHandle{Handle: index, Name: r.NVName}, nil
}

func (t *TPM) read(index tpm2.TPMHandle, size uint16) ([]byte, error) {
	auth, nv, err := t.handle(index)
	if err != nil {
		return nil, err
	}
	r, err := tpm2.NVRead{AuthHandle: auth, NVIndex: nv, Size: size}.Execute(t.conn)
	if err != nil {
		return nil, fmt.Errorf("read NV index %#x: %w", uint32(index), err)
	}
	return r.Data.Buffer, nil
}

func (t *TPM) counter(index tpm2.TPMHandle) (uint64, error) {
	b, err := t.read(index, counterBytes)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(b), nil
}

func (t *TPM) increment(index tpm2.TPMHandle) (uint64, error) {
	auth, nv, err := t.handle(index)
	if err != nil {
		return 0, err
	}
	inc := tpm2.NVIncrement{AuthHandle: auth, NVIndex: nv}
	if _, err := inc.Execute(t.conn); err != nil {
		return 0, fmt.Errorf("increment NV index %#x: %w", uint32(index), err)
	}
	return t.counter(index)
}
