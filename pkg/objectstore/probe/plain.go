package probe

import (
	"context"
	"time"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// plain is a store without a network between: a directory, or memory.
type plain struct {
	store objectstore.Store
	name  string
}

// Plain is the target for a store without checksum modes, clock and connection.
func Plain(store objectstore.Store, name string) Target {
	return plain{store, name}
}

func (p plain) Modes() []string                                        { return []string{"None"} }
func (p plain) Open(string) (objectstore.Store, error)                 { return p.store, nil }
func (p plain) Verifies(context.Context, string, string) (bool, error) { return false, nil }
func (p plain) Skew() (time.Duration, bool)                            { return 0, false }
func (p plain) Encrypted() bool                                        { return true }
func (p plain) Name() string                                           { return p.name }
