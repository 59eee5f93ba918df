package mover

import (
	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover/signingkeys"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// finalErrors need somebody to change something first. A store that cannot be
// reached and a device that cannot be read are not among them, nor is a clock that
// is off: NTP may be at it.
var finalErrors = []error{
	ErrMount, ErrVolume, ErrStateDiffers, ErrIncomplete, ErrTask, signingkeys.ErrMalformed,
	firmware.ErrArchive, firmware.ErrBadTree, firmware.ErrUnusable, firmware.ErrTooLarge, firmware.ErrOwner, firmware.ErrNotEmpty,
	keys.ErrRecipient, keys.ErrIdentity, keys.ErrSecret,
	objectstore.ErrDenied, objectstore.ErrNoBucket, objectstore.ErrFull, objectstore.ErrBadKey,
	probe.ErrNoConditionalWrites,
	repository.ErrNotInitialised, repository.ErrForeign, repository.ErrUnsupported, repository.ErrWrongIdentity,
	repository.ErrNotAuthentic, repository.ErrDamaged, repository.ErrMissing, repository.ErrNoCommit,
	repository.ErrAborted, repository.ErrOtherBackup, repository.ErrTooLarge, repository.ErrInvalid,
}
