package firmware

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf16"

	"github.com/google/uuid"
)

var (
	vendorGlobal     = uuid.MustParse("8be4df61-93ca-11d2-aa0d-00e098032b8c")
	vendorImage      = uuid.MustParse("d719b2cb-3d3a-4596-a3bc-dad00e67656f")
	vendorSecureBoot = uuid.MustParse("f0a30bc7-af08-4556-99c4-001009c93a44")
)

// SecureBoot says whether the firmware will refuse unsigned loaders.
type SecureBoot string

const (
	SecureBootEnabled  SecureBoot = "Enabled"
	SecureBootDisabled SecureBoot = "Disabled"
)

// EFIFacts is what the variables say of a VM, for its record and for a drill to
// compare. It holds digests and names only, nothing that opens anything.
type EFIFacts struct {
	// SecureBoot is Enabled if a platform key is enrolled and nobody switched
	// Secure Boot off in the firmware's menu.
	SecureBoot SecureBoot `json:"secureBoot"`
	// Keys are the digests of the enrolled keys; an empty one is not enrolled.
	Keys EFIKeys `json:"keys"`
	// BootOrder names the entries in the order in which they are tried, for example "0001".
	BootOrder []string `json:"bootOrder,omitempty"`
	// BootEntries are the Boot#### variables by number.
	BootEntries []BootEntry `json:"bootEntries,omitempty"`
	// Variables is the number of variables in force.
	Variables int `json:"variables"`
	// FreeBytes is what the firmware can still write before it cleans up at a boot.
	FreeBytes int64    `json:"freeBytes"`
	WorkArea  WorkArea `json:"workArea"`
}

// EFIKeys holds the digest of the data of each key database.
type EFIKeys struct {
	PK  string `json:"pk,omitempty"`
	KEK string `json:"kek,omitempty"`
	DB  string `json:"db,omitempty"`
	DBX string `json:"dbx,omitempty"`
}

// BootEntry is one Boot#### variable.
type BootEntry struct {
	ID          string `json:"id"`
	Description string `json:"description"`
	// State is Inactive for an entry that the boot manager passes over.
	State BootState `json:"state"`
}

// BootState says whether the boot manager uses an entry.
type BootState string

const (
	BootActive   BootState = "Active"
	BootInactive BootState = "Inactive"
)

var bootName = regexp.MustCompile(`^Boot[0-9A-F]{4}$`)

// maxDescription bounds what a guest can put into a record.
const maxDescription = 128

// Facts tells what the store says of the VM.
func (s VariableStore) Facts() EFIFacts {
	f := EFIFacts{
		SecureBoot: SecureBootDisabled,
		Keys: EFIKeys{
			PK: s.digest("PK", vendorGlobal), KEK: s.digest("KEK", vendorGlobal),
			DB: s.digest("db", vendorImage), DBX: s.digest("dbx", vendorImage),
		},
		BootOrder: s.bootOrder(),
		Variables: len(s.Variables), FreeBytes: s.FreeBytes, WorkArea: s.WorkArea,
	}
	enable, set := s.Get("SecureBootEnable", vendorSecureBoot)
	if f.Keys.PK != "" && (!set || (len(enable) == 1 && enable[0] == 1)) {
		f.SecureBoot = SecureBootEnabled
	}
	for _, v := range s.Variables {
		if v.Vendor == vendorGlobal && bootName.MatchString(v.Name) {
			f.BootEntries = append(f.BootEntries, bootEntry(v))
		}
	}
	slices.SortFunc(f.BootEntries, func(a, b BootEntry) int { return cmp.Compare(a.ID, b.ID) })
	return f
}

func (s VariableStore) digest(name string, vendor uuid.UUID) string {
	data, ok := s.Get(name, vendor)
	if !ok || len(data) == 0 {
		return ""
	}
	return digestOf(data)
}

func (s VariableStore) bootOrder() []string {
	data, _ := s.Get("BootOrder", vendorGlobal)
	var order []string
	for i := 0; i+2 <= len(data); i += 2 {
		order = append(order, fmt.Sprintf("%04X", binary.LittleEndian.Uint16(data[i:])))
	}
	return order
}

// bootEntry reads an EFI load option: attributes (4 bytes), length of the device
// path (2), description in UCS-2 up to a zero.
func bootEntry(v Variable) BootEntry {
	e := BootEntry{ID: v.Name[len("Boot"):], State: BootInactive}
	if len(v.Data) < 6 {
		return e
	}
	const active = 1
	if binary.LittleEndian.Uint32(v.Data)&active != 0 {
		e.State = BootActive
	}
	var units []uint16
	for i := 6; i+2 <= len(v.Data) && len(units) < maxDescription; i += 2 {
		u := binary.LittleEndian.Uint16(v.Data[i:])
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	e.Description = printable(string(utf16.Decode(units)))
	return e
}

// printable keeps a guest's text from moving a terminal or breaking a line.
func printable(s string) string {
	r := []rune(s)
	for i, c := range r {
		if !strconv.IsPrint(c) {
			r[i] = '?'
		}
	}
	return string(r)
}
