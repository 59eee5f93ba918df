package s3

import (
	"errors"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
)

// What a probe says of versions and locks, for each kind of bucket.
func TestProbeBucket(t *testing.T) {
	lock := func(o *s3store.Options) {
		o.Lock = &s3store.Lock{Mode: objectstore.Governance, For: 44 * 24 * time.Hour}
	}
	for name, tc := range map[string]struct {
		bucket Bucket
		change func(*s3store.Options)
		want   map[string]probe.Outcome
		err    error
	}{
		"Plain":           {Bucket{}, nil, map[string]probe.Outcome{probe.CheckBucket: probe.OK}, nil},
		"Versioned":       {Bucket{Versioned: true}, nil, map[string]probe.Outcome{probe.CheckBucket: probe.OK}, nil},
		"LockNotAsked":    {Bucket{Locked: true}, nil, map[string]probe.Outcome{probe.CheckBucket: probe.OK, probe.CheckLock: probe.OK}, nil},
		"Locked":          {Bucket{Locked: true}, lock, map[string]probe.Outcome{probe.CheckBucket: probe.OK, probe.CheckLock: probe.OK}, nil},
		"LockOfPlain":     {Bucket{}, lock, map[string]probe.Outcome{probe.CheckBucket: probe.OK, probe.CheckLock: probe.Failed}, objectstore.ErrNoLock},
		"LockOfVersioned": {Bucket{Versioned: true}, lock, map[string]probe.Outcome{probe.CheckBucket: probe.OK, probe.CheckLock: probe.Failed}, objectstore.ErrNoLock},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := StartWith(t, tc.bucket).Options
			if tc.change != nil {
				tc.change(&opt)
			}
			got := probe.Run(t.Context(), s3store.Target(opt))
			for _, f := range got.Findings {
				t.Logf("%-8s %-16s %s", f.Outcome, f.Check, f.Message)
				if want, named := tc.want[f.Check]; named && f.Outcome != want {
					t.Errorf("%s: %s, want %s", f.Check, f.Outcome, want)
				}
				delete(tc.want, f.Check)
			}
			if len(tc.want) > 0 || !errors.Is(got.Err, tc.err) || tc.err == nil && got.Err != nil {
				t.Errorf("not found: %v; error %v, want %v", tc.want, got.Err, tc.err)
			}
			leftovers(t, opt)
		})
	}
}

// leftovers: a probe leaves nothing but what it locked, for a minute.
func leftovers(t *testing.T, opt s3store.Options) {
	t.Helper()
	s, err := s3store.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	for v, err := range s.Versions(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		r, err := s.Retention(t.Context(), v.Key, v.ID)
		if err != nil || r.Until.IsZero() || time.Until(r.Until) > probe.LockFor {
			t.Errorf("left behind: %+v, retention %+v, %v", v, r, err)
		}
	}
}

// A bucket that locks by itself is warned of.
func TestProbeDefaultRetention(t *testing.T) {
	srv := StartWith(t, Bucket{Locked: true})
	mode, validity, unit := minio.Governance, uint(3), minio.Days
	if err := srv.client(t).SetObjectLockConfig(t.Context(), bucket, &mode, &validity, &unit); err != nil {
		t.Fatal(err)
	}
	got := probe.Run(t.Context(), s3store.Target(srv.Options))
	if got.Err != nil {
		t.Error(got.Err)
	}
	for _, f := range got.Findings {
		t.Logf("%-8s %-16s %s", f.Outcome, f.Check, f.Message)
		if f.Check == probe.CheckLock && f.Outcome == probe.Warning {
			return
		}
	}
	t.Error("nothing is said of the bucket's default retention")
}

// What was created with a lock is locked for as long as asked, and what is not to be is not.
func TestLockAtCreate(t *testing.T) {
	srv := StartWith(t, Bucket{Locked: true})
	for _, mode := range []s3store.Checksum{s3store.CRC32C, s3store.ContentMD5, s3store.SHA256} {
		opt := srv.Options
		opt.Checksum = mode
		opt.Lock = &s3store.Lock{Mode: objectstore.Compliance, For: 48 * time.Hour, Covers: func(key string) bool { return key != "s" }}
		opt.Prefix = string(mode)
		s, err := s3store.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"p", "s"} {
			info, err := s.Create(t.Context(), key, []byte("body"))
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.Retention(t.Context(), key, info.VersionID)
			left := time.Until(r.Until)
			if locked := err == nil && r.Mode == objectstore.Compliance && left > 47*time.Hour && left < 49*time.Hour; locked != (key == "p") {
				t.Errorf("%s, %q: retention %+v, %v", mode, key, r, err)
			}
		}
	}
}
