package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// TestRewrapAsks: recipients that a VMStateStore names are shown, and nothing is opened to them unasked.
func TestRewrapAsks(t *testing.T) {
	identity, err := keys.GenerateIdentity()
	if err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.VMStateStore{}
	s.Spec.Recipients = []string{identity.Recipient}
	for _, tc := range []struct {
		answer    string
		yes, want bool
	}{{"", false, false}, {"no\n", false, false}, {"yes\n", false, true}, {"", true, true}} {
		var shown bytes.Buffer
		a := &app{in: strings.NewReader(tc.answer), err: &shown}
		if err := a.agreeTo(s, tc.yes); (err == nil) != tc.want {
			t.Errorf("answer %q, --yes %t: %v", tc.answer, tc.yes, err)
		}
		if !strings.Contains(shown.String(), keys.Fingerprint(identity.Recipient)) {
			t.Errorf("the recipient was not shown: %s", shown.String())
		}
	}
	a := &app{in: strings.NewReader("yes\nno\n"), err: &bytes.Buffer{}}
	if err := a.agreeTo(s, false); err != nil {
		t.Error(err)
	}
	if err := a.agreeTo(s, false); err == nil {
		t.Error("a second question took the answer of the first")
	}
}
