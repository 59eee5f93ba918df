package keys

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"filippo.io/age"
)

// Identity is a new hybrid post-quantum key pair as text. Secret opens backups and
// belongs nowhere in the cluster that writes them.
type Identity struct {
	Secret, Recipient string
}

// GenerateIdentity makes a hybrid identity (ML-KEM-768 with X25519).
func GenerateIdentity() (Identity, error) {
	i, err := age.GenerateHybridIdentity()
	if err != nil {
		return Identity{}, fmt.Errorf("generate identity: %w", err)
	}
	return Identity{Secret: i.String(), Recipient: i.Recipient().String()}, nil
}

// ParseIdentities reads an identity file: one a line, empty lines and lines that
// begin with # left aside. ErrIdentity tells the line, never its text.
func ParseIdentities(file []byte) ([]age.Identity, error) {
	var out []age.Identity
	line := 0
	for text := range bytes.SplitSeq(file, []byte("\n")) {
		line++
		s := strings.TrimSpace(string(text))
		if s == "" || strings.HasPrefix(s, "#") {
			continue
		}
		identity, err := parseIdentity(s)
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrIdentity, line, err)
		}
		out = append(out, identity)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the file holds none; its lines begin with %sPQ-1 or %s1",
			ErrIdentity, identityPrefix, identityPrefix)
	}
	return out, nil
}

// parseIdentity's errors hold nothing of s, which is a secret.
func parseIdentity(s string) (age.Identity, error) {
	switch {
	case strings.HasPrefix(s, identityPrefix+"PQ-1"):
		if i, err := age.ParseHybridIdentity(s); err == nil {
			return i, nil
		}
	case strings.HasPrefix(s, identityPrefix+"1"):
		if i, err := age.ParseX25519Identity(s); err == nil {
			return i, nil
		}
	case strings.HasPrefix(s, "age1"):
		return nil, errors.New("this is a recipient (a public key); the identity is the secret part")
	default:
		return nil, errors.New("not an age identity")
	}
	return nil, errors.New("malformed identity: wrong length, letters or checksum")
}

// RecipientOf returns the public part of an identity, empty for foreign kinds.
func RecipientOf(i age.Identity) string {
	switch i := i.(type) {
	case *age.HybridIdentity:
		return i.Recipient().String()
	case *age.X25519Identity:
		return i.Recipient().String()
	default:
		return ""
	}
}

func isNoMatch(err error) bool {
	_, ok := errors.AsType[*age.NoIdentityMatchError](err)
	return ok
}
