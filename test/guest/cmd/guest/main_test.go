package main

import (
	"path/filepath"
	"testing"
)

func TestExitCodes(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "absent")
	cases := map[string]struct {
		args []string
		want int
	}{
		"NoCommand":   {nil, exitUsage},
		"Unknown":     {[]string{"bake"}, exitUsage},
		"UnknownFlag": {[]string{"inspect", "-colour"}, exitUsage},
		"FlagMissing": {[]string{"inspect", "-disk", absent}, exitUsage},
		"Argument":    {[]string{"inspect", "-disk", absent, "-state", absent, "more"}, exitUsage},
		"BadPace":     {[]string{"image", "-o", absent, "-step", "quickly"}, exitUsage},
		"NotThere":    {[]string{"inspect", "-disk", absent, "-state", absent}, exitNotFound},
		"NoDisk":      {[]string{"boot", "-disk", absent, "-state", absent}, exitNotFound},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := run(t.Context(), tc.args); got != tc.want {
				t.Errorf("guest %q: exit code %d, want %d", tc.args, got, tc.want)
			}
		})
	}
}
