package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/minio/minio-go/v7/pkg/encrypt"
)

// Encryption is what the server is asked to do to objects at rest. They are encrypted
// before they leave us, whatever is set here: this serves rules that ask for it.
type Encryption struct {
	// KMSKeyID asks for SSE-KMS with that key.
	KMSKeyID string
	// KMS asks for SSE-KMS with the bucket's key.
	KMS bool
	// CustomerKey of 32 bytes asks for SSE-C: it goes with every request, and without
	// it nothing is read again. Only over TLS.
	CustomerKey []byte
}

// serverSide is e as the client library wants it; nil for none. The zero value of e asks
// for SSE-S3.
func (e *Encryption) serverSide(endpoint *url.URL) (encrypt.ServerSide, error) {
	switch {
	case e == nil:
		return nil, nil
	case len(e.CustomerKey) > 0 && endpoint.Scheme != "https":
		return nil, errors.New("a customer key (SSE-C) goes with every request: the endpoint must be https")
	case len(e.CustomerKey) > 0:
		sse, err := encrypt.NewSSEC(e.CustomerKey)
		if err != nil {
			return nil, fmt.Errorf("customer key (SSE-C) of %d bytes, 32 are needed: %w", len(e.CustomerKey), err)
		}
		return sse, nil
	case e.KMS || e.KMSKeyID != "":
		return encrypt.NewSSEKMS(e.KMSKeyID, nil)
	default:
		return encrypt.NewSSE(), nil
	}
}

// The headers by which a server says how an object is encrypted.
const (
	headerSSE         = "X-Amz-Server-Side-Encryption"
	headerSSECustomer = "X-Amz-Server-Side-Encryption-Customer-Algorithm"
)

// encryptedAs is what the server says of an object; empty for nothing.
func (s *Store) encryptedAs(ctx context.Context, key string) (string, error) {
	found, err := s.stat(ctx, key, "")
	if err != nil {
		return "", fmt.Errorf("stat %q: %w", key, err)
	}
	if found.Metadata.Get(headerSSECustomer) != "" {
		return "SSE-C", nil
	}
	return found.Metadata.Get(headerSSE), nil
}
