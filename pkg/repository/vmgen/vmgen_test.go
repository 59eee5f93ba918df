package vmgen

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestImage pins the generator on images small enough for every run; the digests of
// the large ones are told at Image and Scatter, and test/bench compares those.
func TestImage(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "img"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 64 << 20
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := Image(f, size, 1); err != nil {
		t.Fatal(err)
	}
	first := digest(t, f)
	if err := Scatter(f, size, 1, 1); err != nil {
		t.Fatal(err)
	}
	second := digest(t, f)
	if err := Cluster(f, size, 1, 10); err != nil {
		t.Fatal(err)
	}
	got := [3]string{first, second, digest(t, f)}
	want := [3]string{
		"9e916385344a713593861a63b1541ab945a740b08dd7452d1b25d07d7c2442fc",
		"30d739d7284951182bda36f9f90f3ff42a98ff8f44c81ac7726c6a33cd3f76f6",
		"f94cb1da4e753f70cddbdb160d6d55e97378dbe1a572c92621536195078a620e",
	}
	if got != want {
		t.Errorf("digests of image and of changed image are %q, not %q", got, want)
	}
}

func digest(t *testing.T, f *os.File) string {
	t.Helper()
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, 1<<40)); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}
