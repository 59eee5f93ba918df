package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"filippo.io/age"
)

const (
	hybridPrefix   = "age1pq1"
	identityPrefix = "AGE-SECRET-KEY-"
)

// Recipients are the age public keys that may open a repository: all hybrid
// post-quantum (age1pq1…) or all X25519 (age1…), since age refuses a mix. The zero
// value has none. The order is kept; it has no meaning.
type Recipients struct {
	names []string
	age   []age.Recipient
}

// ParseRecipients checks a list. ErrRecipient names a bad one by its position,
// counted from 1; what looks like an identity is never repeated in the text.
func ParseRecipients(list []string) (Recipients, error) {
	var r Recipients
	if len(list) == 0 {
		return r, fmt.Errorf("%w: no recipient is given; kubectl vmstate keygen makes one", ErrRecipient)
	}
	for i, s := range list {
		parsed, err := parseRecipient(s)
		if err != nil {
			return Recipients{}, fmt.Errorf("%w %d of %d: %w", ErrRecipient, i+1, len(list), err)
		}
		if slices.Contains(r.names, s) {
			return Recipients{}, fmt.Errorf("%w %d of %d: given twice", ErrRecipient, i+1, len(list))
		}
		if i > 0 && isHybrid(s) != isHybrid(list[0]) {
			return Recipients{}, fmt.Errorf("%w %d of %d: hybrid (age1pq1…) and X25519 (age1…) recipients "+
				"cannot be mixed; use hybrid ones only", ErrRecipient, i+1, len(list))
		}
		r.names, r.age = append(r.names, s), append(r.age, parsed)
	}
	return r, nil
}

// parseRecipient's errors hold nothing of s: it may be a secret in the wrong place.
func parseRecipient(s string) (age.Recipient, error) {
	switch {
	case strings.Contains(strings.ToUpper(s), identityPrefix):
		return nil, fmt.Errorf("this is an identity (a secret key), not a recipient; " +
			"treat it as disclosed and make a new one")
	case isHybrid(s):
		if r, err := age.ParseHybridRecipient(s); err == nil {
			return r, nil
		}
		return nil, fmt.Errorf("malformed hybrid recipient: wrong length, letters or checksum")
	case strings.HasPrefix(s, "age1"):
		if r, err := age.ParseX25519Recipient(s); err == nil {
			return r, nil
		}
		return nil, fmt.Errorf("malformed X25519 recipient: wrong length, letters or checksum")
	default:
		return nil, fmt.Errorf("does not begin with age1pq1 or age1")
	}
}

func isHybrid(s string) bool { return strings.HasPrefix(s, hybridPrefix) }

// Strings returns the recipients as they were given.
func (r Recipients) Strings() []string { return slices.Clone(r.names) }

// Empty reports whether there is no recipient.
func (r Recipients) Empty() bool { return len(r.names) == 0 }

// Equal reports whether both hold the same recipients, in any order.
func (r Recipients) Equal(other Recipients) bool {
	return slices.Equal(slices.Sorted(slices.Values(r.names)), slices.Sorted(slices.Values(other.names)))
}

// Fingerprints returns Fingerprint of each.
func (r Recipients) Fingerprints() []string {
	out := make([]string, len(r.names))
	for i, n := range r.names {
		out[i] = Fingerprint(n)
	}
	return out
}

// Fingerprint is the first 8 bytes of the SHA-256 of a recipient's text, in
// hexadecimal: hybrid recipients are 1959 letters long, too long for a message.
func Fingerprint(recipient string) string {
	sum := sha256.Sum256([]byte(recipient))
	return hex.EncodeToString(sum[:8])
}

// Short is a recipient as messages show it: its ends and its fingerprint.
func Short(recipient string) string {
	shown := recipient
	if len(shown) > 64 {
		shown = shown[:20] + "…" + shown[len(shown)-8:]
	}
	return shown + " (" + Fingerprint(recipient) + ")"
}

// ShortList joins Short of each.
func ShortList(recipients []string) string {
	out := make([]string, len(recipients))
	for i, r := range recipients {
		out[i] = Short(r)
	}
	return strings.Join(out, ", ")
}

// Wrap encrypts plain to all recipients, as one age file.
func (r Recipients) Wrap(plain []byte) ([]byte, error) {
	if r.Empty() {
		return nil, fmt.Errorf("%w: no recipient is given", ErrRecipient)
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, r.age...)
	if err != nil {
		return nil, fmt.Errorf("encrypt to recipients: %w", err)
	}
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// Unwrap opens an age file of a key. ErrWrongIdentity if none of the identities is among
// its recipients, ErrDamaged if it is cut or altered.
func Unwrap(file []byte, identities []age.Identity) ([]byte, error) {
	return UnwrapUpTo(file, identities, maxWrapped)
}

// UnwrapUpTo is Unwrap for a file that holds at most limit bytes; ErrDamaged if it holds more.
func UnwrapUpTo(file []byte, identities []age.Identity, limit int64) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(file), identities...)
	if err != nil {
		if isNoMatch(err) {
			return nil, ErrWrongIdentity
		}
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if int64(len(plain)) > limit {
		return nil, fmt.Errorf("%w: it holds more than %d bytes", ErrDamaged, limit)
	}
	return plain, nil
}

// CheckWrapped proves, without an identity, as much of an age file as that can: it has
// the form of one, and the length for what it holds. ErrDamaged otherwise.
func CheckWrapped(file []byte, plainBytes int) error {
	header, err := age.ExtractHeader(bytes.NewReader(file))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if n := len(file) - len(header); n != payloadOverhead+plainBytes {
		return fmt.Errorf("%w: payload of %d bytes, not %d", ErrDamaged, n, payloadOverhead+plainBytes)
	}
	return nil
}

// CheckAdded is CheckWrapped for a file for later recipients, which may be a signed document around an age file.
func CheckAdded(file []byte, plainBytes int) error {
	if bytes.HasPrefix(file, []byte(ageIntro)) {
		return CheckWrapped(file, plainBytes)
	}
	e, err := decodeEpoch(file)
	if err != nil {
		return err
	}
	return CheckWrapped(e.Age, plainBytes)
}

// payloadOverhead is what age adds to a payload of one chunk: a nonce and a tag.
const payloadOverhead = 16 + 16

// maxWrapped bounds what an age file here may hold; key sets and keys are small.
const maxWrapped = 4096
