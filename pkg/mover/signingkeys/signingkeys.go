// Package signingkeys decodes what a cluster knows of a store's signing keys, for movers and for the command line.
package signingkeys

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// ErrMalformed: a key or a digest is not one.
var ErrMalformed = errors.New("malformed knowledge of signing keys")

// Of a store, as its movers are told.
func Of(c config.Store) (repository.Known, error) {
	out := repository.Known{Epoch: c.KeyEpoch, Distrusted: c.Distrusted}
	if c.EpochKey != "" {
		key, err := base64.StdEncoding.DecodeString(c.EpochKey)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return out, fmt.Errorf("%w: signing key of epoch %d: %q", ErrMalformed, c.KeyEpoch, c.EpochKey)
		}
		out.SigningKey = key
	}
	for _, w := range c.Words {
		digest, err := hex.DecodeString(w.Digest)
		if err != nil || len(digest) != 32 {
			return out, fmt.Errorf("%w: digest of the word on epoch %d: %q", ErrMalformed, w.Epoch, w.Digest)
		}
		out.Words = append(out.Words, repository.Word{Epoch: w.Epoch, Number: w.Number, Digest: [32]byte(digest)})
	}
	return out, nil
}
