package task

import (
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	type config struct {
		Name string `json:"name"`
	}
	for name, tc := range map[string]struct {
		text string
		ok   bool
	}{
		"Good":    {`{"name":"a"}`, true},
		"Empty":   {``, false},
		"Unknown": {`{"name":"a","later":1}`, false},
		"Behind":  {`{"name":"a"}{"name":"b"}`, false},
		"Cut":     {`{"name":"a"`, false},
		"Array":   {`[]`, false},
	} {
		t.Run(name, func(t *testing.T) {
			var c config
			err := Decode([]byte(tc.text), "mover", &c)
			if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "config of the mover") {
				t.Errorf("got %+v, %v", c, err)
			}
		})
	}
}
