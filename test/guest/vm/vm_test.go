package vm

import (
	"testing"
)

func TestCleanLine(t *testing.T) {
	cases := map[string]string{
		"STATE OK gen=1\r\n": "STATE OK gen=1",
		"\x1b[2J\x1b[01;01H\x1b[=3h\x1b[0m\x1b[35m\x1b[40mBdsDxe: loading\r\n": "BdsDxe: loading",
		"\x1b[?25l\x1b(B\r\n":        "",
		"STEP gen=5 [in brackets]\n": "STEP gen=5 [in brackets]",
	}
	for raw, want := range cases {
		if got := cleanLine(raw); got != want {
			t.Errorf("cleanLine(%q) = %q, want %q", raw, got, want)
		}
	}
}
