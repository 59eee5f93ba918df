package pace

import (
	"errors"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		want string
		on   bool
		err  error
	}{
		"":        {want: "off"},
		"off":     {want: "off"},
		"fast":    {want: "fast", on: true},
		"3s":      {want: "3s", on: true},
		"250ms":   {want: "250ms", on: true},
		"3s-10s":  {want: "3s-10s", on: true},
		"3":       {err: ErrInvalid},
		"0s":      {err: ErrInvalid},
		"-3s":     {err: ErrInvalid},
		"10s-3s":  {err: ErrInvalid},
		"3s-":     {err: ErrInvalid},
		"quickly": {err: ErrInvalid},
	}
	for in, tc := range cases {
		p, err := Parse(in)
		if !errors.Is(err, tc.err) {
			t.Errorf("Parse(%q): got error %v, want %v", in, err, tc.err)
			continue
		}
		if err == nil && (p.String() != tc.want || p.On() != tc.on) {
			t.Errorf("Parse(%q): got %q on=%v, want %q on=%v", in, p, p.On(), tc.want, tc.on)
		}
	}
}

func TestNextStaysInRange(t *testing.T) {
	p, err := Parse("3ms-10ms")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[time.Duration]bool{}
	for range 1000 {
		d := p.Next()
		if d < 3*time.Millisecond || d > 10*time.Millisecond {
			t.Fatalf("Next() = %v, want 3ms to 10ms", d)
		}
		seen[d.Truncate(time.Millisecond)] = true
	}
	if len(seen) < 7 {
		t.Errorf("1000 intervals fell into %d of 7 milliseconds: not spread", len(seen))
	}
}
