package repository

import (
	"testing"

	"github.com/vmstate/vmstate/pkg/repository/commit"
)

// FuzzVerifyState: the state of a round comes back from whoever keeps it, and goes on as it was or not at all.
func FuzzVerifyState(f *testing.F) {
	f.Add("")
	f.Add((&verifyState{Version: 1, VM: "00", Next: 7, Seen: make([]byte, seenBytes), Total: 5, Damaged: []DamagedObject{{Key: "r/a"}}}).encode())
	f.Fuzz(func(t *testing.T, text string) {
		s, err := decodeVerifyState(text)
		if err != nil {
			return
		}
		again, err := decodeVerifyState(s.encode())
		if err != nil || again.encode() != s.encode() {
			t.Errorf("%q becomes %+v and then %+v, %v", text, s, again, err)
		}
		if s.seen(commit.Digest{1}) != again.seen(commit.Digest{1}) {
			t.Errorf("%q forgets what was seen", text)
		}
	})
}
