package keys

import (
	"errors"
	"fmt"
)

// Errors that package repository re-exports; its texts say when each comes.
var (
	ErrNotInitialised = errors.New("repository is not initialised")
	ErrForeign        = errors.New("repository belongs to another key set")
	ErrUnsupported    = errors.New("format version is not supported")
	ErrWrongIdentity  = errors.New("no identity given opens it")
	ErrNotAuthentic   = errors.New("not authentic")
	ErrDamaged        = errors.New("object is damaged")
	// ErrSetBack is ErrNotAuthentic of a store that does not show what is known of its signing keys.
	ErrSetBack = fmt.Errorf("%w: the store shows less of its signing keys than was seen of them", ErrNotAuthentic)
	// ErrRecipient: a recipient list is empty, malformed or mixed.
	ErrRecipient = errors.New("invalid recipient")
	// ErrIdentity: an identity file is empty or malformed.
	ErrIdentity = errors.New("invalid identity")
	// ErrSecret: the map is not a key set that this program wrote.
	ErrSecret = errors.New("invalid repository key set")
)
