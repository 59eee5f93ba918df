package memstore_test

import (
	"testing"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/memstore"
	"github.com/vmstate/vmstate/pkg/objectstore/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) objectstore.Store { return memstore.New() })
}
