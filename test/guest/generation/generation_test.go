package generation

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const idA, idB = "00112233445566ff", "8899aabbccddeeff"

func mark(id string, n uint64) *Mark { return &Mark{Identity: id, Generation: n} }

func TestJudge(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     Reading
		want   Verdict
	}{
		"Blank":     {"nothing was written yet", Reading{}, Verdict{Kind: Blank}},
		"Whole":     {"between two steps", Reading{mark(idA, 7), mark(idA, 7), mark(idA, 7)}, Verdict{Kind: Whole}},
		"AfterDisk": {"the disk is written first", Reading{mark(idA, 7), mark(idA, 6), mark(idA, 6)}, Verdict{Kind: InFlight}},
		"AfterTPM":  {"the EFI variable is written last", Reading{mark(idA, 7), mark(idA, 7), mark(idA, 6)}, Verdict{Kind: InFlight}},
		"TPMAhead": {"the TPM never leads the disk", Reading{mark(idA, 6), mark(idA, 7), mark(idA, 6)},
			Verdict{Torn, "generations differ: disk 6, TPM 7, EFI 6"}},
		"EFIAhead": {"the EFI variable never leads the TPM", Reading{mark(idA, 7), mark(idA, 6), mark(idA, 7)},
			Verdict{Torn, "generations differ: disk 7, TPM 6, EFI 7"}},
		"DiskTwoAhead": {"one step is in flight, never two", Reading{mark(idA, 8), mark(idA, 6), mark(idA, 6)},
			Verdict{Torn, "generations differ: disk 8, TPM 6, EFI 6"}},
		"OtherGuest": {"the same number in another guest is another state", Reading{mark(idA, 7), mark(idB, 7), mark(idA, 7)},
			Verdict{Torn, "identities differ: disk " + idA + ", TPM " + idB + ", EFI " + idA}},
		"BlankFirmware": {"a disk whose firmware state was lost", Reading{Disk: mark(idA, 7)},
			Verdict{Torn, "absent: TPM, EFI"}},
		"BlankDisk": {"a new disk never meets a used TPM", Reading{TPM: mark(idA, 7), EFI: mark(idA, 7)},
			Verdict{Torn, "absent: disk"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Judge(tc.in)); diff != "" {
				t.Errorf("%s\nJudge() mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEFIRoundTrip(t *testing.T) {
	b, err := mark(idA, 1<<40).EncodeEFI()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEFI(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*mark(idA, 1<<40), got); diff != "" {
		t.Errorf("mark changed (-want +got):\n%s", diff)
	}
	if _, err := DecodeEFI(b[:15]); !errors.Is(err, ErrMalformed) {
		t.Errorf("short value: got %v, want ErrMalformed", err)
	}
	if _, err := (Mark{Identity: "zz"}).EncodeEFI(); !errors.Is(err, ErrMalformed) {
		t.Errorf("bad identity: got %v, want ErrMalformed", err)
	}
}

func TestVault(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, KeyBytes), bytes.Repeat([]byte{2}, KeyBytes)
	v, err := SealVault(key, *mark(idA, 42))
	if err != nil {
		t.Fatal(err)
	}
	changedHeader := bytes.Replace(v, []byte("42"), []byte("43"), 1)
	changedBody := bytes.Clone(v)
	changedBody[len(v)-1] ^= 1
	cases := map[string]struct {
		key, vault []byte
		want       Mark
		err        error
	}{
		"Opens":         {key, v, *mark(idA, 42), nil},
		"OtherKey":      {other, v, Mark{}, ErrVault},
		"ChangedHeader": {key, changedHeader, Mark{}, ErrVault},
		"ChangedBody":   {key, changedBody, Mark{}, ErrVault},
		"Truncated":     {key, v[:45], Mark{}, ErrVault},
		"Empty":         {key, nil, Mark{}, ErrMalformed},
		"NoHeader":      {key, []byte("something else\n"), Mark{}, ErrMalformed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := OpenVault(tc.key, tc.vault)
			if !errors.Is(err, tc.err) {
				t.Fatalf("OpenVault: got error %v, want %v", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("mark (-want +got):\n%s", diff)
			}
		})
	}
}
