package commit

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The extension to the byte, and that what cannot be understood says nothing.
func TestReadings(t *testing.T) {
	want := []Reading{
		{Volume: 0, Way: WayChanged},
		{Volume: 1},
		{Volume: 2, Way: WayAudited, Untold: 16384, UntoldAt: 1 << 20, Why: "old"},
		{Volume: 3, Why: "new"},
	}
	e, needed := EncodeReadings(want)
	if got := hex.EncodeToString(e.Data); !needed || e.Tag != 0x8010 || got != "030001000000"+"0203808001808040036f6c64"+"03000000036e6577" {
		t.Errorf("needed %t, tag %#x, %s", needed, e.Tag, got)
	}
	r := &Record{Volumes: make([]Volume, 4), Extensions: []Extension{{Tag: 0x9000}, e}}
	if diff := cmp.Diff(want, r.Readings()); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	if _, needed := EncodeReadings(want[1:2]); needed {
		t.Error("a volume that was read as ever is recorded")
	}
	for name, data := range map[string][]byte{
		"Cut": e.Data[:len(e.Data)-1], "Longer": append(e.Data, 0), "OtherWay": {1, 0, 9, 0, 0, 0}, "NoVolume": {1, 9, 1, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r.Extensions[1].Data = data
			if diff := cmp.Diff([]Reading{{Volume: 0}, {Volume: 1}, {Volume: 2}, {Volume: 3}}, r.Readings()); diff != "" {
				t.Errorf("readings (-want +got):\n%s", diff)
			}
		})
	}
}

// The same of when volumes were last read in full.
func TestFully(t *testing.T) {
	want := []Reading{{Volume: 0, FullyAt: 1}, {Volume: 1}, {Volume: 2, FullyAt: 1_790_000_000}}
	e, needed := EncodeFully(want)
	if got := hex.EncodeToString(e.Data); !needed || e.Tag != 0x8011 || got != "02"+"0001"+"0280f7c4d506" {
		t.Errorf("needed %t, tag %#x, %s", needed, e.Tag, got)
	}
	r := &Record{Volumes: make([]Volume, 3), Extensions: []Extension{e}}
	if diff := cmp.Diff(want, r.Readings()); diff != "" {
		t.Errorf("readings (-want +got):\n%s", diff)
	}
	if _, needed := EncodeFully(want[1:2]); needed {
		t.Error("what is not known is recorded")
	}
	r.Extensions[0].Data = e.Data[:len(e.Data)-1]
	if diff := cmp.Diff([]Reading{{Volume: 0}, {Volume: 1}, {Volume: 2}}, r.Readings()); diff != "" {
		t.Errorf("cut (-want +got):\n%s", diff)
	}
}
