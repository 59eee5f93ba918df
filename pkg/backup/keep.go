package backup

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/job"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
)

// keptState is the name of the mount that the kept state is written to.
const keptState = "state"

// keep makes what a backup without a store consists of: snapshots, and a claim with the state.
func keep(in Observed) Decision {
	if actions := undo(in); len(actions) > 0 {
		return in.act(v1alpha1.ReasonKeeping, "keeping snapshots and firmware state", actions...)
	}
	if d, stop := readable(in, v1alpha1.ReasonKeeping); stop {
		return d
	}
	if !hasState(in.Backup) || in.Keep.outcome() == v1alpha1.OutcomeSucceeded {
		return keptLocally(in)
	}
	t := in.Keep
	switch {
	case t.outcome() == v1alpha1.OutcomeFailed, t.Failed != "":
		return in.failJob(t, v1alpha1.ReasonExportFailed, "keeping the firmware state")
	case t.Exists && !t.Started && !t.NoRoom && in.since(t.Created) >= pendingLimit:
		return in.fail(v1alpha1.ReasonExportFailed, "the firmware state could not be kept: its Job did not start in %s: %s", pendingLimit, t.Pending)
	case t.Exists:
		return waitForJob(in, t, v1alpha1.ReasonKeeping, "keeping the firmware state")
	}
	if why := distrustMoment(in); why != "" {
		return in.fail(v1alpha1.ReasonWitnessFailed, "%s", why)
	}
	return in.act(v1alpha1.ReasonKeeping, "keeping the firmware state",
		action.CreateClaim{Claim: stateClaim(in)}, action.RunJob{Job: keepJob(in)})
}

func keptLocally(in Observed) Decision {
	d := in.record(v1alpha1.ReasonKept, "", func(s *v1alpha1.VMStateBackupStatus) {
		s.Local = &v1alpha1.LocalCopy{Snapshots: in.Cut.Snapshots}
		if hasState(in.Backup) {
			s.Local.StateClaimName = StateClaimName(in.Backup)
		}
		at := metav1.NewTime(in.Now)
		s.CompletedAt = &at
	})
	return saying(in, d)
}

// stateClaim is like the VM's own, without the label that would make it the VM's own.
func stateClaim(in Observed) *corev1.PersistentVolumeClaim {
	mode := corev1.PersistentVolumeFilesystem
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: StateClaimName(in.Backup)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			VolumeMode:  &mode,
		},
	}
	for _, v := range includedOf(&in.Backup.Status, v1alpha1.RoleFirmwareState) {
		claim.Spec.Resources.Requests = corev1.ResourceList{
			corev1.ResourceStorage: *resource.NewQuantity(v.SizeBytes, resource.BinarySI),
		}
		if v.StorageClassName != "" {
			claim.Spec.StorageClassName = &v.StorageClassName
		}
	}
	return claim
}

func keepJob(in Observed) job.Spec {
	raw, _ := moverconfig.Config{KeepState: &moverconfig.KeepState{ // strings alone: it encodes
		Volume: keptState, Digest: in.Backup.Status.Moment.StateDigest,
	}}.Encode()
	mounts := append(stateMounts(in), job.Mount{Claim: StateClaimName(in.Backup), Path: job.PathVolumes + "/" + keptState})
	return job.Spec{
		Name: KeepName(in.Backup), Task: v1alpha1.TaskKeepState, Config: raw, Mounts: mounts, OwnVolumes: true, Retries: 3,
		Deadline: keepLimit,
	}
}
