package keys

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
)

// FormatKey is the key of the object that makes a store a repository.
const FormatKey = "format.json"

// maxDocument bounds format.json and the epoch files: 32 hybrid recipients fit.
const maxDocument = 256 << 10

// formatName and formatVersion are what this program reads and writes.
const (
	formatName    = "vmstate-repository"
	formatVersion = 1
)

// Format is format.json. It never changes, so it holds no key that rotates.
type Format struct {
	Format     string     `json:"format"`
	Version    int        `json:"version"`
	Repository string     `json:"repository"`
	RootKey    []byte     `json:"rootKey"`
	Parameters Parameters `json:"parameters"`
	Signature  []byte     `json:"signature,omitempty"`
}

// Parameters name the algorithms, so that a later version can tell.
type Parameters struct {
	ContentID   string `json:"contentID"`
	Fingerprint string `json:"fingerprint"`
	Compression string `json:"compression"`
	Cipher      string `json:"cipher"`
}

func parametersV1() Parameters {
	return Parameters{
		ContentID:   "hmac-sha256-128",
		Fingerprint: "hmac-sha256-128(aes256-gmac)",
		Compression: "zstd",
		Cipher:      "aes256-gcm",
	}
}

// epochFile is k/<epoch>.age: who can open the index keys of one epoch, and the
// age file that they open. Signer is the signing key of the epoch before, for
// epoch 1 the root key.
type epochFile struct {
	Version    int      `json:"version"`
	Repository string   `json:"repository"`
	Epoch      uint32   `json:"epoch"`
	Recipients []string `json:"recipients"`
	SigningKey []byte   `json:"signingKey"`
	Commitment []byte   `json:"commitment"`
	Age        []byte   `json:"age"`
	Signer     []byte   `json:"signer"`
	Signature  []byte   `json:"signature,omitempty"`
}

const (
	formatContext = "vmstate/v1/format\x00"
	epochContext  = "vmstate/v1/epoch\x00"
)

// encode is compact JSON with members in the order of the struct and no escapes
// for HTML. Documents are compared to it, so there is one encoding of a value.
func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// decode refuses what encode would not have written.
func decode(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	again, err := encode(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, body) {
		return fmt.Errorf("%w: not in canonical form", ErrDamaged)
	}
	return nil
}

func encodeFormat(k *Keys) ([]byte, error) {
	f := Format{
		Format:     formatName,
		Version:    formatVersion,
		Repository: k.repository.String(),
		RootKey:    k.SigningKey(),
		Parameters: parametersV1(),
	}
	unsigned, err := encode(f)
	if err != nil {
		return nil, err
	}
	f.Signature = ed25519.Sign(k.signing, append([]byte(formatContext), unsigned...))
	return encode(f)
}

// DecodeFormat reads format.json and checks its own signature.
func DecodeFormat(body []byte) (Format, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(body, &head); err != nil || head.Format != formatName {
		return Format{}, fmt.Errorf("%w: %q is not a repository's", ErrDamaged, FormatKey)
	}
	if head.Version != formatVersion {
		return Format{}, fmt.Errorf("%q: %w: repository has version %d, this program reads %d",
			FormatKey, ErrUnsupported, head.Version, formatVersion)
	}
	var f Format
	if err := decode(body, &f); err != nil {
		return Format{}, fmt.Errorf("%q: %w", FormatKey, err)
	}
	unsigned := f
	unsigned.Signature = nil
	if err := verify(f.RootKey, formatContext, unsigned, f.Signature); err != nil {
		return Format{}, fmt.Errorf("%q: %w", FormatKey, err)
	}
	if f.Parameters != parametersV1() {
		return Format{}, fmt.Errorf("%q: %w: parameters %+v", FormatKey, ErrUnsupported, f.Parameters)
	}
	_, err := ParseID(f.Repository)
	if err != nil {
		return Format{}, fmt.Errorf("%w: %q: %w", ErrDamaged, FormatKey, err)
	}
	return f, nil
}

func verify(key []byte, context string, unsigned any, signature []byte) error {
	if len(key) != ed25519.PublicKeySize || len(signature) != ed25519.SignatureSize {
		return fmt.Errorf("%w: key or signature has a wrong length", ErrDamaged)
	}
	body, err := encode(unsigned)
	if err != nil {
		return err
	}
	if !ed25519.Verify(key, append([]byte(context), body...), signature) {
		return fmt.Errorf("%w: signature does not match", ErrNotAuthentic)
	}
	return nil
}
