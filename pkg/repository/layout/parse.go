package layout

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// RunObject is what the key of an object of a run says.
type RunObject struct {
	VM keys.ID
	// Kind is one of the kinds below.
	Kind   RunKind
	Origin keys.Origin
	// Number of a pack.
	Number uint32
}

// RunKind tells the objects of a run apart, by the letter in their names.
type RunKind byte

// The kinds of objects of a run.
const (
	KindDataKey   RunKind = 'k'
	KindDataPack  RunKind = 'p'
	KindIndexPack RunKind = 'i'
)

// key is the name that has these parts; data keys for later recipients have another.
func (o RunObject) key() string {
	switch o.Kind {
	case KindDataKey:
		return DataKey(o.VM, o.Origin)
	case KindDataPack:
		return DataPack(o.VM, o.Origin, o.Number)
	default:
		return IndexPack(o.VM, o.Origin, o.Number)
	}
}

// ParseRunObject reads the key of a pack, or of the first file of a data key.
func ParseRunObject(key string) (RunObject, error) {
	var o RunObject
	bad := fmt.Errorf("%q is not the key of a pack or data key", key)
	parts := strings.Split(key, "/")
	if len(parts) != 4 || parts[0]+"/" != Runs || len(parts[3]) < 2 {
		return o, bad
	}
	var err error
	if o.VM, err = keys.ParseID(parts[1]); err != nil {
		return o, bad
	}
	if o.Origin.Run, err = keys.ParseID(parts[2]); err != nil {
		return o, bad
	}
	o.Kind = RunKind(parts[3][0])
	attempt, number, _ := strings.Cut(strings.TrimSuffix(parts[3][1:], ".age"), "-")
	a, err := strconv.ParseUint(attempt, 10, 16)
	if err != nil {
		return o, bad
	}
	n, err := strconv.ParseUint("0"+number, 10, 32)
	if err != nil {
		return o, bad
	}
	o.Origin.Attempt, o.Number = uint16(a), uint32(n)
	if o.key() != key {
		return o, bad
	}
	return o, nil
}
