package protocol

import (
	"bytes"
	"errors"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/test/guest/generation"
)

var errPower = errors.New("power lost")

// machine is the three places in memory. fuel is how many writes still succeed
// before the power fails; negative is for ever.
type machine struct {
	vault, public, private []byte
	seed                   byte
	tpm, efi               *generation.Mark
	fuel                   int
}

func newMachine() *machine { return &machine{seed: 1, fuel: -1} }

func (m *machine) burn() error {
	if m.fuel == 0 {
		return errPower
	}
	m.fuel--
	return nil
}

type fakeDisk struct{ *machine }

func (d fakeDisk) Vault() ([]byte, error) { return d.vault, nil }

func (d fakeDisk) Sealed() (*Sealed, error) {
	if d.public == nil {
		return nil, nil
	}
	return &Sealed{d.public, d.private}, nil
}

func (d fakeDisk) WriteVault(b []byte) error {
	if err := d.burn(); err != nil {
		return err
	}
	d.vault = b
	return nil
}

func (d fakeDisk) WriteSealed(s Sealed) error {
	d.public, d.private = s.Public, s.Private
	return nil
}

type fakeTPM struct{ *machine }

func (t fakeTPM) Mark() (*generation.Mark, error) { return t.tpm, nil }

func (t fakeTPM) Provision(id string) (uint64, error) {
	t.tpm = &generation.Mark{Identity: id, Generation: 1}
	return 1, nil
}

func (t fakeTPM) Increment() (uint64, error) {
	if err := t.burn(); err != nil {
		return 0, err
	}
	next := t.tpm.Next()
	t.tpm = &next
	return next.Generation, nil
}

func (t fakeTPM) Seal(secret []byte) ([]byte, []byte, error) {
	return []byte{t.seed}, bytes.Clone(secret), nil
}

func (t fakeTPM) Unseal(public, private []byte) ([]byte, error) {
	if public[0] != t.seed {
		return nil, errors.New("integrity\n\tcheck failed")
	}
	return private, nil
}

type fakeEFI struct{ *machine }

func (e fakeEFI) Mark() (*generation.Mark, error) { return e.efi, nil }

func (e fakeEFI) Write(m generation.Mark) error {
	if err := e.burn(); err != nil {
		return err
	}
	e.efi = &m
	return nil
}

func guestOf(m *machine) *Guest { return &Guest{Disk: fakeDisk{m}, TPM: fakeTPM{m}, EFI: fakeEFI{m}} }

func boot(t *testing.T, m *machine) *Guest {
	t.Helper()
	g := guestOf(m)
	if o := g.Boot(); !o.OK {
		t.Fatalf("boot: %s", o.Line)
	}
	return g
}

func step(t *testing.T, g *Guest, n int) {
	t.Helper()
	for range n {
		if _, err := g.Step(); err != nil {
			t.Fatal(err)
		}
	}
}

// at returns a copy of a machine that made n steps, always of the same guest.
func at(t *testing.T, base *machine, n int) *machine {
	t.Helper()
	m := *base
	step(t, boot(t, &m), n)
	return &m
}

func TestBoot(t *testing.T) {
	base := newMachine()
	boot(t, base)
	early, late := at(t, base, 2), at(t, base, 5)
	other := newMachine()
	boot(t, other)
	mix := func(disk, tpm, efi *machine) *machine {
		return &machine{vault: disk.vault, public: disk.public, private: disk.private,
			seed: tpm.seed, tpm: tpm.tpm, efi: efi.efi, fuel: -1}
	}
	blankTPM := &machine{seed: 9}
	cases := map[string]struct {
		in   *machine
		want string // the line, identities replaced by ID
		ok   bool
	}{
		"First":       {newMachine(), "FIRST BOOT gen=1 id=ID", true},
		"Same":        {mix(late, late, late), "STATE OK gen=6 disk=6 tpm=6 efi=6 id=ID", true},
		"OldFirmware": {mix(late, early, early), `STATE MISMATCH disk=6 tpm=3 efi=3 reason="generations differ: disk 6, TPM 3, EFI 3"`, false},
		"OldDisk":     {mix(early, late, late), `STATE MISMATCH disk=3 tpm=6 efi=6 reason="generations differ: disk 3, TPM 6, EFI 6"`, false},
		"BlankTPM":    {mix(late, blankTPM, late), `UNSEAL FAILED tpm=absent efi=6 error="integrity check failed"`, false},
		"BlankEFI":    {mix(late, late, newMachine()), `STATE MISMATCH disk=6 tpm=6 efi=absent reason="absent: EFI"`, false},
		"BlankDisk":   {mix(newMachine(), late, late), "STATE MISMATCH disk=absent tpm=6 efi=6", false},
		"OtherEFI": {mix(base, base, other), `STATE MISMATCH disk=1 tpm=1 efi=1 reason="identities differ: disk ID, TPM ID, EFI ID"`,
			false},
	}
	hex16 := regexp.MustCompile(`[0-9a-f]{16}`)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := guestOf(tc.in).Boot()
			got.Line = hex16.ReplaceAllString(got.Line, "ID")
			if diff := cmp.Diff(Outcome{Line: tc.want, OK: tc.ok}, got); diff != "" {
				t.Errorf("Boot() mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStepRefusedAfterBadBoot(t *testing.T) {
	m := newMachine()
	boot(t, m)
	m.seed = 9
	g := guestOf(m)
	if o := g.Boot(); o.OK {
		t.Fatalf("boot with another TPM: %s", o.Line)
	}
	before := *m
	if _, err := g.Step(); !errors.Is(err, ErrNotOpen) {
		t.Errorf("Step after a bad boot: got %v, want ErrNotOpen", err)
	}
	if diff := cmp.Diff(before.vault, m.vault); diff != "" {
		t.Error("a refused step changed the disk")
	}
}

// TestPowerLoss cuts the power after every write of a step: each state is a true
// moment, and the next boot finishes the step.
func TestPowerLoss(t *testing.T) {
	for writes, kind := range []generation.Kind{generation.Whole, generation.InFlight, generation.InFlight, generation.Whole} {
		m := newMachine()
		g := boot(t, m)
		step(t, g, 3)
		m.fuel = writes
		_, err := g.Step()
		if lost := writes < 3; lost != errors.Is(err, errPower) {
			t.Fatalf("step with %d writes: error %v", writes, err)
		}
		m.fuel = -1
		disk, err := generation.ReadVaultHeader(m.vault)
		if err != nil {
			t.Fatal(err)
		}
		if v := generation.Judge(generation.Reading{Disk: &disk, TPM: m.tpm, EFI: m.efi}); v.Kind != kind {
			t.Errorf("power lost after %d writes: %+v, want %s", writes, v, kind)
		}
		step(t, boot(t, m), 1)
		if want := disk.Generation + 1; m.tpm.Generation != want || m.efi.Generation != want {
			t.Errorf("after %d writes, a boot and a step: TPM %d, EFI %d, want %d", writes, m.tpm.Generation, m.efi.Generation, want)
		}
	}
}
