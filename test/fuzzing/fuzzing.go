// Package fuzzing is what fuzz targets of several packages check.
package fuzzing

import (
	"bytes"
	"testing"
)

// Stable fuzzes a form that may be written in several ways: what is read of it is written
// so that the same is read again.
func Stable[T any](f *testing.F, decode func([]byte) (T, error), encode func(T) ([]byte, error)) {
	f.Helper()
	f.Fuzz(func(t *testing.T, in []byte) {
		v, err := decode(in)
		if err != nil {
			return
		}
		once, err := encode(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decode(once)
		if err != nil {
			t.Fatalf("%s does not decode: %v", once, err)
		}
		if twice, err := encode(again); err != nil || !bytes.Equal(once, twice) {
			t.Errorf("%s becomes %s, %v", once, twice, err)
		}
	})
}
