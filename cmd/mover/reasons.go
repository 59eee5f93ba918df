package main

import (
	"errors"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/probe"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

// reasons map errors to the reason that a person and the manager see. The first that
// fits wins.
var reasons = []struct {
	kind   error
	reason string
}{
	{probe.ErrNoConditionalWrites, v1alpha1.ReasonNoConditionalWrites},
	{objectstore.ErrNoLock, v1alpha1.ReasonNoObjectLock},
	{objectstore.ErrLocked, v1alpha1.ReasonObjectLocked},
	{objectstore.ErrFull, v1alpha1.ReasonStoreFull},
	{objectstore.ErrDenied, v1alpha1.ReasonAccessDenied},
	{objectstore.ErrNoBucket, v1alpha1.ReasonBucketNotFound},
	{objectstore.ErrClockSkew, v1alpha1.ReasonClockSkew},
	{objectstore.ErrUnreachable, v1alpha1.ReasonUnreachable},
	{keys.ErrRecipient, v1alpha1.ReasonInvalidRecipients},
	{mover.ErrMount, v1alpha1.ReasonSecretNotFound},
	{mover.ErrStateDiffers, v1alpha1.ReasonStateDamaged},
	{firmware.ErrArchive, v1alpha1.ReasonStateDamaged},
	{firmware.ErrUnusable, v1alpha1.ReasonStateDamaged},
	{repository.ErrWrongIdentity, v1alpha1.ReasonWrongIdentity},
	{keys.ErrIdentity, v1alpha1.ReasonWrongIdentity},
	{repository.ErrSetBack, v1alpha1.ReasonKeysSetBack},
	{repository.ErrForeign, v1alpha1.ReasonKeysElsewhere},
	{repository.ErrNotAuthentic, v1alpha1.ReasonNotAuthentic},
}

// taskReasons are for what means another thing in each task.
var taskReasons = map[string]struct{ damaged, absent, other string }{
	"setup":     {v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonSetupFailed},
	"export":    {v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonExportFailed},
	"resolve":   {v1alpha1.ReasonBackupDamaged, v1alpha1.ReasonBackupNotFound, v1alpha1.ReasonImportFailed},
	"import":    {v1alpha1.ReasonBackupDamaged, v1alpha1.ReasonBackupNotFound, v1alpha1.ReasonImportFailed},
	"catalogue": {v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonCatalogueFailed},
	"maintain":  {v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonMaintenanceFailed},
	"verify":    {v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonRepositoryDamaged, v1alpha1.ReasonVerificationFailed},
	"keepstate": {v1alpha1.ReasonExportFailed, v1alpha1.ReasonExportFailed, v1alpha1.ReasonExportFailed},
}

func reasonOf(task string, err error) string {
	for _, r := range reasons {
		if errors.Is(err, r.kind) {
			return r.reason
		}
	}
	switch own := taskReasons[task]; {
	case errors.Is(err, repository.ErrDamaged), errors.Is(err, repository.ErrMissing), errors.Is(err, mover.ErrIncomplete):
		return own.damaged
	case errors.Is(err, repository.ErrNoCommit), errors.Is(err, repository.ErrNotInitialised):
		return own.absent
	default:
		return own.other
	}
}

// maxMessage bounds what a report holds of an error.
const maxMessage = 4096

// conclude writes into status how the task ended. What another attempt may cure is
// said, but is no outcome. A probe is repeated by the manager, so that one ends each time.
func conclude(status *v1alpha1.VMStateReportStatus, task string, err error) {
	if err == nil {
		status.Outcome = v1alpha1.OutcomeSucceeded
		return
	}
	status.Reason, status.Message = reasonOf(task, err), err.Error()
	if len(status.Message) > maxMessage {
		status.Message = status.Message[:maxMessage] + "…"
	}
	if mover.Final(err) || task == "setup" && !errors.Is(err, mover.ErrStartAgain) {
		status.Outcome = v1alpha1.OutcomeFailed
	}
}
