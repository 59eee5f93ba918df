package memstore_test

import (
	"testing"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return memstore.New() })
	storetest.RunOneVersion(t, func(*testing.T) objectstore.Versioned { return memstore.New() })
}

func TestVersioned(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return memstore.NewVersioned(time.Now, nil) })
	storetest.RunVersions(t, func(*testing.T) storetest.Overwritable { return memstore.NewVersioned(time.Now, nil) })
	storetest.RunLock(t, func(*testing.T) objectstore.Locker { return memstore.NewVersioned(time.Now, nil) })
}
