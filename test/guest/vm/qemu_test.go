//go:build qemu

// The guest's whole life under real firmware and a real software TPM. Slow: five
// boots under emulation, 10 to 40 s each. Needs what `guest deps` installs.

package vm_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/image"
	"github.com/vmstate/vmstate/test/guest/inspect"
	"github.com/vmstate/vmstate/test/guest/statefolder"
	"github.com/vmstate/vmstate/test/guest/tool"
	"github.com/vmstate/vmstate/test/guest/vm"
)

const (
	vmName, vmUUID = "db", "5d307ca9-b3ef-428c-8861-06e72d69f223"
	bootLimit      = 3 * time.Minute
)

// set is one disk and its state folder.
type set struct{ disk, state string }

func newSet(t *testing.T) set {
	dir := t.TempDir()
	return set{filepath.Join(dir, "disk.img"), filepath.Join(dir, "state")}
}

func (s set) config(t *testing.T, step string) vm.Config {
	p := statefolder.For(s.state, vmName, vmUUID)
	return vm.Config{Disk: s.disk, TPMDir: p.TPMDir, Vars: p.Vars, Asset: "vmstate.step=" + step,
		OnLine: func(l vm.Line) { t.Logf("%5.1f s, %4.1f CPU  %s", l.At.Seconds(), l.CPU.Seconds(), l.Text) }}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// compose copies a disk and a state into a new set; an empty state stays blank.
func compose(t *testing.T, disk, state string) set {
	t.Helper()
	s := newSet(t)
	must(t, tool.Run(tool.Command(t.Context(), "cp", "--sparse=always", disk, s.disk)))
	if state != "" {
		must(t, tool.Run(tool.Command(t.Context(), "cp", "-r", state, s.state)))
	}
	return s
}

func judge(t *testing.T, s set) (generation.Reading, generation.Verdict) {
	t.Helper()
	r, err := inspect.Read(t.Context(), s.disk, s.state)
	must(t, err)
	return r, generation.Judge(r)
}

// start boots a set up to its verdict, which it returns with the machine.
func start(t *testing.T, s set, step string) (*vm.VM, string) {
	t.Helper()
	v, err := vm.Start(t.Context(), s.config(t, step))
	must(t, err)
	t.Cleanup(func() { must(t, v.Kill()) })
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	line, err := v.Expect(ctx, "^(FIRST BOOT|STATE|UNSEAL|FATAL)")
	must(t, err)
	return v, line.Text
}

// source runs a guest that steps all the time: early is a copy of the paused guest,
// late is what a crash some steps later leaves.
func source(t *testing.T) (early, late set) {
	t.Helper()
	late = newSet(t)
	must(t, image.Build(t.Context(), image.Options{Out: late.disk, Progress: func(l string) { t.Log(l) }}))
	v, verdict := start(t, late, "fast")
	if !strings.HasPrefix(verdict, "FIRST BOOT gen=") {
		t.Fatalf("first boot: %s", verdict)
	}
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	for range 3 {
		_, err := v.Expect(ctx, "^STEP gen=")
		must(t, err)
	}
	must(t, v.Pause(ctx))
	early = compose(t, late.disk, late.state)
	must(t, v.Resume(ctx))
	for range 3 {
		_, err := v.Expect(ctx, "^STEP gen=")
		must(t, err)
	}
	for command, want := range map[string]string{"guest-ping": "{}", "guest-fsfreeze-status": `"thawed"`} {
		if got, err := v.Agent(ctx, command); err != nil || string(got) != want {
			t.Errorf("agent %s: got %s, %v, want %s", command, got, err, want)
		}
	}
	must(t, v.Kill())
	return early, late
}

func TestGuestTellsWhatItWasGiven(t *testing.T) {
	early, late := source(t)
	for name, s := range map[string]set{"paused copy": early, "crash": late} {
		if r, v := judge(t, s); !v.Moment() {
			t.Errorf("%s: %+v: %+v, want a true moment", name, r, v)
		}
	}
	cases := map[string]struct {
		in     set
		want   string // begin of the verdict
		moment bool
	}{
		"PausedCopy":    {early, "STATE OK gen=", true},
		"Crash":         {late, "STATE OK gen=", true},
		"OlderState":    {compose(t, late.disk, early.state), "STATE MISMATCH ", false},
		"BlankFirmware": {compose(t, late.disk, ""), "UNSEAL FAILED ", false},
	}
	must(t, os.MkdirAll(cases["BlankFirmware"].in.state, 0o755))
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before, verdict := judge(t, tc.in)
			if verdict.Moment() != tc.moment {
				t.Errorf("before the boot: %+v: %+v, want moment %v", before, verdict, tc.moment)
			}
			_, line := start(t, tc.in, "off")
			if !strings.HasPrefix(line, tc.want) {
				t.Errorf("verdict %q, want %q", line, tc.want)
			}
		})
	}
}

// TestFreezeHoldsTheDisk shows that a frozen guest does not step, while TPM and EFI
// variables can still change.
func TestFreezeHoldsTheDisk(t *testing.T) {
	s := newSet(t)
	must(t, image.Build(t.Context(), image.Options{Out: s.disk}))
	v, _ := start(t, s, "off")
	ctx, cancel := context.WithTimeout(t.Context(), bootLimit)
	defer cancel()
	if got, err := v.Agent(ctx, "guest-fsfreeze-freeze"); err != nil || string(got) != "1" {
		t.Fatalf("freeze: got %s, %v, want 1", got, err)
	}
	before, _ := judge(t, s)
	_, err := v.Ask(ctx, "pace 50ms", "^PACE 50ms$")
	must(t, err)
	if l, err := v.Ask(ctx, "fw", "^FW "); err != nil || !strings.HasSuffix(l.Text, "frozen=true err=<nil>") {
		t.Errorf("firmware write under freeze: %q, %v", l.Text, err)
	}
	after, verdict := judge(t, s)
	if *before.Disk != *after.Disk || !verdict.Moment() {
		t.Errorf("disk went from %+v to %+v under freeze, verdict %+v", before.Disk, after.Disk, verdict)
	}
	if got, err := v.Agent(ctx, "guest-fsfreeze-thaw"); err != nil || string(got) != "1" {
		t.Errorf("thaw: got %s, %v, want 1", got, err)
	}
	_, err = v.Expect(ctx, "^STEP gen=")
	must(t, err, v.Poweroff(ctx))
	if r, verdict := judge(t, s); verdict.Kind != generation.Whole {
		t.Errorf("after a shutdown: %+v: %+v, want whole", r, verdict)
	}
}
