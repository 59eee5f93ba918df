package tpmnv

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/swtpm"
)

const identity = "00112233445566ff"

// tpmDir returns a short, empty folder: a socket is to fit into it.
func tpmDir(t *testing.T) string {
	t.Helper()
	if !swtpm.Installed() {
		t.Skip("swtpm is not installed")
	}
	dir, err := os.MkdirTemp("", "tpmnv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func with(t *testing.T, dir string, use func(*TPM) error) {
	t.Helper()
	err := swtpm.With(t.Context(), dir, func(conn transport.TPM) error { return use(New(conn)) })
	if err != nil {
		t.Fatal(err)
	}
}

// TestMarkOutlivesTheTPM kills the TPM without a shutdown and reads again.
func TestMarkOutlivesTheTPM(t *testing.T) {
	dir := tpmDir(t)
	var first uint64
	with(t, dir, func(tpm *TPM) (err error) {
		if m, err := tpm.Mark(); m != nil || err != nil {
			t.Errorf("blank TPM: got %v, %v, want no mark", m, err)
		}
		if first, err = tpm.Provision(identity); err != nil {
			return err
		}
		_, errIncrement := tpm.Increment()
		_, errScratch := tpm.Scratch()
		return errors.Join(errIncrement, errScratch)
	})
	with(t, dir, func(tpm *TPM) error {
		got, err := tpm.Mark()
		if diff := cmp.Diff(&generation.Mark{Identity: identity, Generation: first + 1}, got); diff != "" {
			t.Errorf("mark after a crash (-want +got):\n%s", diff)
		}
		return err
	})
}

func TestSeal(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, generation.KeyBytes)
	var public, private []byte
	dir := tpmDir(t)
	with(t, dir, func(tpm *TPM) (err error) {
		public, private, err = tpm.Seal(secret)
		return err
	})
	with(t, dir, func(tpm *TPM) error {
		got, err := tpm.Unseal(public, private)
		if !bytes.Equal(got, secret) {
			t.Error("the same TPM gave another secret")
		}
		return err
	})
	with(t, tpmDir(t), func(tpm *TPM) error {
		if _, err := tpm.Unseal(public, private); err == nil {
			t.Error("another TPM gave the secret")
		}
		return nil
	})
}
