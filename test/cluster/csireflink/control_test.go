package csireflink

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestControl(t *testing.T) {
	type call struct {
		Worked bool
		Code   codes.Code
	}
	cases := map[string]struct {
		reason  string
		control string
		want    []call // of three calls in a row
	}{
		"NoFile": {
			reason: "without a file the driver behaves",
			want:   []call{{true, codes.OK}, {true, codes.OK}, {true, codes.OK}},
		},
		"FailTwice": {
			reason:  "so many calls fail as are asked for, without an effect",
			control: `{"fail": {"CreateSnapshot": {"code": 14, "times": 2}}}`,
			want:    []call{{false, codes.Unavailable}, {false, codes.Unavailable}, {true, codes.OK}},
		},
		"FailAlways": {
			reason:  "no number means always, no code Internal",
			control: `{"fail": {"CreateSnapshot": {"message": "broken"}}}`,
			want:    []call{{false, codes.Internal}, {false, codes.Internal}, {false, codes.Internal}},
		},
		"LostAnswer": {
			reason:  "the work is done although the caller is told otherwise",
			control: `{"failAfter": {"CreateSnapshot": {"code": 4, "times": 1}}}`,
			want:    []call{{true, codes.DeadlineExceeded}, {true, codes.OK}, {true, codes.OK}},
		},
		"OtherMethod": {
			reason:  "what is asked of one method leaves the others alone",
			control: `{"fail": {"CreateVolume": {"code": 14}}}`,
			want:    []call{{true, codes.OK}, {true, codes.OK}, {true, codes.OK}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &controls{file: filepath.Join(t.TempDir(), "control.json")}
			if tc.control != "" {
				if err := os.WriteFile(c.file, []byte(tc.control), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var got []call
			for range 3 {
				worked := false
				_, err := c.around(context.Background(), "CreateSnapshot", func() (any, error) {
					worked = true
					return nil, nil
				})
				got = append(got, call{worked, status.Code(err)})
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\ncalls mismatch (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestControlCountsAnewAfterChange(t *testing.T) {
	c := &controls{file: filepath.Join(t.TempDir(), "control.json")}
	work := func() (any, error) { return nil, nil }
	var got []codes.Code
	for _, message := range []string{"first", "second"} {
		control := `{"fail": {"CreateSnapshot": {"code": 14, "times": 1, "message": "` + message + `"}}}`
		if err := os.WriteFile(c.file, []byte(control), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := c.around(context.Background(), "CreateSnapshot", work)
			got = append(got, status.Code(err))
		}
	}
	want := []codes.Code{codes.Unavailable, codes.OK, codes.Unavailable, codes.OK}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("codes mismatch (-want +got):\n%s", diff)
	}
}

func TestDelayEndsWithTheCall(t *testing.T) {
	c := &controls{file: filepath.Join(t.TempDir(), "control.json")}
	if err := os.WriteFile(c.file, []byte(`{"delayMillis": {"CreateSnapshot": 60000}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	_, err := c.around(ctx, "CreateSnapshot", func() (any, error) { return nil, errors.New("the work was done") })
	if got := status.Code(err); got != codes.DeadlineExceeded {
		t.Errorf("code = %v, want %v", got, codes.DeadlineExceeded)
	}
}
