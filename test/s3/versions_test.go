package s3

import (
	"fmt"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

// fresh opens an empty part of the bucket each time.
func fresh[S any](srv *Server, as func(*s3store.Store) S) func(t *testing.T) S {
	n := 0
	return func(t *testing.T) S {
		t.Helper()
		n++
		opt := srv.Options
		opt.Prefix = fmt.Sprintf("%s/%d", opt.Prefix, n)
		s, err := s3store.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		return as(s)
	}
}

func asStore(s *s3store.Store) objectstore.Store         { return s }
func asVersioned(s *s3store.Store) objectstore.Versioned { return s }
func asLocker(s *s3store.Store) objectstore.Locker       { return s }

// A bucket without versions is asked as one with them, and has one of each object.
func TestUnversioned(t *testing.T) {
	storetest.RunVersions(t, false, fresh(Start(t, false), asVersioned))
}

func TestVersioned(t *testing.T) {
	srv := StartWith(t, Bucket{Versioned: true})
	storetest.Run(t, fresh(srv, asStore))
	storetest.RunVersions(t, true, fresh(srv, asVersioned))
}

func TestLocked(t *testing.T) {
	srv := StartWith(t, Bucket{Locked: true})
	storetest.RunVersions(t, true, fresh(srv, asVersioned))
	storetest.RunLock(t, fresh(srv, asLocker))
}
