package objectstore

import (
	"fmt"
	"strings"
)

// CheckKey returns ErrBadKey unless key is one that every Store can keep; the
// rules are told at Store.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKeyBytes {
		return fmt.Errorf("%w: %d bytes, allowed are 1 to %d", ErrBadKey, len(key), MaxKeyBytes)
	}
	for segment := range strings.SplitSeq(key, "/") {
		if segment == "" || segment[0] == '.' || strings.ContainsFunc(segment, foreign) {
			return fmt.Errorf("%w: segment %q of %q", ErrBadKey, segment, key)
		}
	}
	return nil
}

func foreign(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	default:
		return r != '.' && r != '_' && r != '-'
	}
}

// CheckCreate returns ErrBadKey or ErrTooLarge if no Store takes this object.
func CheckCreate(key string, body []byte) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if len(body) > MaxObjectBytes {
		return fmt.Errorf("%w: %q has %d bytes, allowed are %d", ErrTooLarge, key, len(body), MaxObjectBytes)
	}
	return nil
}
