package s3

import (
	"fmt"
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

// fresh opens an empty part of the bucket each time.
func fresh(srv *Server) func(t *testing.T) *s3store.Store {
	n := 0
	return func(t *testing.T) *s3store.Store {
		t.Helper()
		n++
		opt := srv.Options
		opt.Prefix = fmt.Sprintf("part-%d", n)
		s, err := s3store.New(opt)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// A bucket without versions is asked as one with them, and has one of each object.
func TestUnversioned(t *testing.T) {
	next := fresh(Start(t, false))
	storetest.RunOneVersion(t, func(t *testing.T) objectstore.Versioned { return next(t) })
}

func TestVersioned(t *testing.T) {
	srv := StartWith(t, Bucket{Versioned: true})
	next := fresh(srv)
	storetest.Run(t, func(t *testing.T) objectstore.Store { return next(t) })
	storetest.RunVersions(t, func(t *testing.T) storetest.Overwritable { return next(t) })
}

func TestLocked(t *testing.T) {
	next := fresh(StartWith(t, Bucket{Locked: true}))
	storetest.RunVersions(t, func(t *testing.T) storetest.Overwritable { return next(t) })
	storetest.RunLock(t, func(t *testing.T) objectstore.Locker { return next(t) })
}
