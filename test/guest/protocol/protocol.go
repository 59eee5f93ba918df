// Package protocol is the guest's life: first boot, the check at every boot, and
// the step. It knows the three places as interfaces and no device.
//
//	disk    TPM     EFI         done at boot                      verdict
//	blank   blank   blank       make identity, key and places     FIRST BOOT
//	sealed  any     any         TPM does not give the key         UNSEAL FAILED
//	sealed  equal   equal       nothing                           STATE OK
//	sealed  in flight           finish the step                   STATE OK … in-flight
//	anything else               nothing                           STATE MISMATCH
//
// After the last two kinds of failure the guest writes nothing: it keeps the
// evidence as it found it.
package protocol

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/vmstate/vmstate/test/guest/generation"
)

// Sealed is the disk key as the TPM sealed it.
type Sealed struct{ Public, Private []byte }

// Disk is the encrypted place. Both reads return nil without an error where there
// is nothing yet; writes are durable on return.
type Disk interface {
	Vault() ([]byte, error)
	Sealed() (*Sealed, error)
	WriteVault([]byte) error
	WriteSealed(Sealed) error
}

// TPM is the TPM's place; *tpmnv.TPM is one.
type TPM interface {
	Mark() (*generation.Mark, error)
	Provision(identity string) (uint64, error)
	Increment() (uint64, error)
	Seal(secret []byte) (public, private []byte, err error)
	Unseal(public, private []byte) ([]byte, error)
}

// EFI is the EFI variable's place.
type EFI interface {
	Mark() (*generation.Mark, error)
	Write(generation.Mark) error
}

// ErrNotOpen is returned by Step if the last Boot did not end well.
var ErrNotOpen = errors.New("state is not open")

// Guest holds the open state. Boot comes first; the methods may then be called
// concurrently.
type Guest struct {
	Disk Disk
	TPM  TPM
	EFI  EFI

	mu   sync.Mutex
	key  []byte
	mark *generation.Mark
}

// Outcome is the result of Boot. Line is the one line for the console.
type Outcome struct {
	Line string
	OK   bool
}

// Boot checks the three places, as the package comment tells.
func (g *Guest) Boot() Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	tpm, tpmErr := g.TPM.Mark()
	efi, efiErr := g.EFI.Mark()
	sealed, sealedErr := g.Disk.Sealed()
	vault, vaultErr := g.Disk.Vault()
	seen := fmt.Sprintf("tpm=%s efi=%s", word(tpm, tpmErr), word(efi, efiErr))
	switch {
	case sealedErr != nil || vaultErr != nil:
		return bad("STATE MISMATCH disk=unreadable %s error=%q", seen, oneLine(errors.Join(sealedErr, vaultErr)))
	case sealed == nil && vault == nil:
		return g.bootBlankDisk(tpm == nil && tpmErr == nil && efi == nil && efiErr == nil, seen)
	case sealed == nil || vault == nil:
		return bad("STATE MISMATCH disk=incomplete %s", seen)
	}
	key, err := g.TPM.Unseal(sealed.Public, sealed.Private)
	if err != nil {
		return bad("UNSEAL FAILED %s error=%q", seen, oneLine(err))
	}
	disk, err := generation.OpenVault(key, vault)
	if err != nil {
		return bad("UNSEAL FAILED %s error=%q", seen, oneLine(err))
	}
	seen = fmt.Sprintf("disk=%d %s", disk.Generation, seen)
	if err := errors.Join(tpmErr, efiErr); err != nil {
		return bad("STATE MISMATCH %s error=%q", seen, oneLine(err))
	}
	return g.bootSealed(key, generation.Reading{Disk: &disk, TPM: tpm, EFI: efi}, seen)
}

func (g *Guest) bootBlankDisk(allBlank bool, seen string) Outcome {
	if !allBlank {
		return bad("STATE MISMATCH disk=absent %s", seen)
	}
	if err := g.firstBoot(); err != nil {
		g.mark = nil
		return bad("FIRST BOOT FAILED error=%q", oneLine(err))
	}
	return Outcome{Line: fmt.Sprintf("FIRST BOOT gen=%d id=%s", g.mark.Generation, g.mark.Identity), OK: true}
}

func (g *Guest) bootSealed(key []byte, r generation.Reading, seen string) Outcome {
	v := generation.Judge(r)
	if !v.Moment() {
		return bad("STATE MISMATCH %s reason=%q", seen, v.Reason)
	}
	note := ""
	if v.Kind == generation.InFlight {
		note = " in-flight"
		if err := g.finishStep(r); err != nil {
			return bad("STATE MISMATCH %s roll-forward=%q", seen, oneLine(err))
		}
	}
	g.key, g.mark = key, r.Disk
	return Outcome{Line: fmt.Sprintf("STATE OK gen=%d%s %s id=%s", r.Disk.Generation, note, seen, r.Disk.Identity), OK: true}
}

// finishStep does the writes of an interrupted step that are still missing.
func (g *Guest) finishStep(r generation.Reading) error {
	if r.TPM.Generation < r.Disk.Generation {
		if err := g.incrementTo(r.Disk.Generation); err != nil {
			return err
		}
	}
	return g.EFI.Write(*r.Disk)
}

func (g *Guest) firstBoot() error {
	id, key := make([]byte, generation.IdentityBytes), make([]byte, generation.KeyBytes)
	_, _ = rand.Read(id) // crypto/rand.Read never returns an error
	_, _ = rand.Read(key)
	public, private, err := g.TPM.Seal(key)
	if err != nil {
		return err
	}
	mark := generation.Mark{Identity: hex.EncodeToString(id)}
	if mark.Generation, err = g.TPM.Provision(mark.Identity); err != nil {
		return err
	}
	vault, err := generation.SealVault(key, mark)
	if err != nil {
		return err
	}
	if err := g.Disk.WriteSealed(Sealed{Public: public, Private: private}); err != nil {
		return err
	}
	if err := g.Disk.WriteVault(vault); err != nil {
		return err
	}
	g.key, g.mark = key, &mark
	return g.EFI.Write(mark)
}

// Step writes the next generation: disk, TPM, EFI, in this order. After an error
// the state is in flight and the guest takes no further step; the next boot
// finishes it.
func (g *Guest) Step() (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mark == nil {
		return 0, ErrNotOpen
	}
	next := g.mark.Next()
	g.mark = nil
	vault, err := generation.SealVault(g.key, next)
	if err != nil {
		return 0, err
	}
	if err := g.Disk.WriteVault(vault); err != nil {
		return 0, fmt.Errorf("disk: %w", err)
	}
	if err := g.incrementTo(next.Generation); err != nil {
		return 0, fmt.Errorf("TPM: %w", err)
	}
	if err := g.EFI.Write(next); err != nil {
		return 0, fmt.Errorf("EFI: %w", err)
	}
	g.mark = &next
	return next.Generation, nil
}

// Status reads TPM and EFI anew and names the open generation.
func (g *Guest) Status() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	tpm, tpmErr := g.TPM.Mark()
	efi, efiErr := g.EFI.Mark()
	return fmt.Sprintf("disk=%s tpm=%s efi=%s", word(g.mark, nil), word(tpm, tpmErr), word(efi, efiErr))
}

func (g *Guest) incrementTo(want uint64) error {
	n, err := g.TPM.Increment()
	if err != nil {
		return err
	}
	if n != want {
		return fmt.Errorf("counter is %d, want %d", n, want)
	}
	return nil
}

func bad(format string, a ...any) Outcome { return Outcome{Line: fmt.Sprintf(format, a...)} }

// word names a place in one word: its number, absent, or unreadable.
func word(m *generation.Mark, err error) string {
	switch {
	case err != nil:
		return "unreadable"
	case m == nil:
		return "absent"
	default:
		return fmt.Sprint(m.Generation)
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
