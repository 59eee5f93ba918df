package generation

import "fmt"

// Reading is what the three places hold. A nil place is absent: it was looked at
// and holds nothing.
type Reading struct {
	Disk *Mark `json:"disk"`
	TPM  *Mark `json:"tpm"`
	EFI  *Mark `json:"efi"`
}

// Kind is what a Reading is.
type Kind string

const (
	// Blank: all three places are empty, as before the first boot.
	Blank Kind = "Blank"
	// Whole: all three hold the same generation.
	Whole Kind = "Whole"
	// InFlight: a true moment between the first and the last write of one step.
	InFlight Kind = "InFlight"
	// Torn: no moment ever looked like this.
	Torn Kind = "Torn"
)

// Verdict is the answer of Judge. Reason is empty unless Kind is Torn.
type Verdict struct {
	Kind   Kind   `json:"kind"`
	Reason string `json:"reason,omitempty"`
}

// Moment says whether the reading is a generation that existed at one moment.
func (v Verdict) Moment() bool { return v.Kind == Whole || v.Kind == InFlight }

// Judge applies the rule disk-1 <= efi <= tpm <= disk, for one identity.
func Judge(r Reading) Verdict {
	switch {
	case r.Disk == nil && r.TPM == nil && r.EFI == nil:
		return Verdict{Kind: Blank}
	case r.Disk == nil || r.TPM == nil || r.EFI == nil:
		return torn("absent: %s", absent(r))
	case r.Disk.Identity != r.TPM.Identity || r.Disk.Identity != r.EFI.Identity:
		return torn("identities differ: disk %s, TPM %s, EFI %s", r.Disk.Identity, r.TPM.Identity, r.EFI.Identity)
	}
	disk, tpm, efi := r.Disk.Generation, r.TPM.Generation, r.EFI.Generation
	switch {
	case disk == tpm && tpm == efi:
		return Verdict{Kind: Whole}
	case efi <= tpm && tpm <= disk && disk == efi+1:
		return Verdict{Kind: InFlight}
	default:
		return torn("generations differ: disk %d, TPM %d, EFI %d", disk, tpm, efi)
	}
}

func torn(format string, a ...any) Verdict {
	return Verdict{Kind: Torn, Reason: fmt.Sprintf(format, a...)}
}

func absent(r Reading) string {
	names := ""
	for _, p := range []struct {
		name string
		mark *Mark
	}{{"disk", r.Disk}, {"TPM", r.TPM}, {"EFI", r.EFI}} {
		if p.mark != nil {
			continue
		}
		if names != "" {
			names += ", "
		}
		names += p.name
	}
	return names
}
