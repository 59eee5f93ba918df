package restore

import (
	"fmt"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/queue"
	"github.com/vmstate/vmstate/pkg/store"
)

// resolveDeadline bounds the Job that opens a commit: it reads a few small objects.
const resolveDeadline = 15 * time.Minute

// resolveSpec is the Job that opens the commit, or looks for it.
func resolveSpec(in Observed, commit *v1alpha1.CommitRef) (job.Spec, error) {
	task := &config.Resolve{Unlock: unlock(in)}
	if commit != nil {
		task.Commit = &config.Commit{Key: commit.Key, Digest: commit.Digest}
	} else {
		source := in.Restore.Spec.Source
		task.VMNamespace = namespaceOf(source.VM)
		task.VMName = source.VM[len(task.VMNamespace)+1:]
		task.ID = source.Commit
	}
	told, err := config.Config{Store: store.Config(in.Store), Resolve: task}.Encode()
	if err != nil {
		return job.Spec{}, fmt.Errorf("encode what the resolving Job is told: %w", err)
	}
	spec := job.Spec{
		Name: resolveJob(in.Restore.UID), Task: v1alpha1.TaskResolve, Config: told,
		Mounts: storeMounts(in), Deadline: resolveDeadline, Retries: 2,
	}
	if task.Unlock != nil {
		spec.Deadline = 0 // a person is waited for
	}
	return spec, nil
}

// importSpec is the Job that fills the new claims. It mounts all of them, those that
// need no filling too: so they are bound, and on storage that one node reaches.
func importSpec(in Observed) (job.Spec, error) {
	from := in.Restore.Status.From
	task := &config.Import{State: importState(in)}
	spec := job.Spec{Name: importJob(in.Restore.UID), Task: v1alpha1.TaskImport, OwnVolumes: true, Retries: 3}
	told := config.Config{Import: task}
	if from.Commit != nil {
		task.Commit = &config.Commit{Key: from.Commit.Key, Digest: from.Commit.Digest}
		task.Unlock, task.Reader = unlock(in), string(in.Restore.UID)
		told.Store = store.Config(in.Store)
		spec.Store, spec.Slot = in.Store.Name, queue.SlotOf(in.Store, v1alpha1.MoverRestore, in.Restore.UID)
		spec.Mounts = storeMounts(in)
		if keys := in.Store.Status.KeysSecretName; keys != "" { // what a pin is signed with
			spec.Mounts = append(spec.Mounts, job.Mount{Secret: keys, Path: job.PathRepositoryKeys, Optional: true})
		}
	}
	for _, v := range in.Machine.Held {
		mount := job.Mount{Claim: claimName(in, v), Path: path.Join(job.PathVolumes, v.Name)}
		mode := config.Filesystem
		if v.VolumeMode == string(corev1.PersistentVolumeBlock) {
			mount.Block, mount.Path, mode = true, path.Join(job.PathDevices, v.Name), config.Block
		}
		spec.Mounts = append(spec.Mounts, mount)
		if from.Commit != nil && v.Role == v1alpha1.RoleDisk {
			task.Disks = append(task.Disks, config.Disk{Name: v.Name, Mode: mode, SizeBytes: v.SizeBytes})
		}
	}
	if l := localCopy(in); l != nil && task.State != nil {
		spec.Mounts = append(spec.Mounts, job.Mount{Claim: l.StateClaimName, Path: path.Join(job.PathVolumes, task.State.KeptVolume), ReadOnly: true})
	}
	var err error
	if spec.Config, err = told.Encode(); err != nil {
		return job.Spec{}, fmt.Errorf("encode what the importing Job is told: %w", err)
	}
	return spec, nil
}

// keptVolume is where the Job finds the state that a backup without a store keeps. No
// volume of a virtual machine has that name: it has a dot and an upper case letter.
const keptVolume = "vmstate.keptState"

// importState is what becomes of the firmware state; nil if the backup has none.
func importState(in Observed) *config.ImportState {
	m := *in.Machine
	state := m.State()
	if state == nil {
		return nil
	}
	policy := in.Restore.Spec.TPMPolicy
	if policy == "" {
		policy = v1alpha1.TPMKeep
	}
	machine := config.Machine{
		VMName: m.VM.Name, FirmwareUUID: m.Identity.FirmwareUUID,
		PersistentTPM: m.Identity.PersistentTPM, PersistentEFI: m.Identity.PersistentEFI,
	}
	out := &config.ImportState{VolumeName: state.Name, From: machine, To: machine, TPMPolicy: string(policy)}
	out.To.VMName = targetName(in.Restore, in.Restore.Status.From)
	out.To.FirmwareUUID = wanted(in).firmwareUUID(m)
	if localCopy(in) != nil {
		out.KeptVolume = keptVolume
		if in.Backup.Status.Moment != nil {
			out.Digest = in.Backup.Status.Moment.StateDigest
		}
	}
	return out
}

// wanted is what the restored spec has that the backed up one had not.
func wanted(in Observed) Wanted {
	w := Wanted{
		Claims: map[string]string{}, Revisions: map[string]string{}, Seed: in.Restore.UID,
		NewUUID: in.Restore.Spec.FirmwareUUID == v1alpha1.IdentityNew,
		NewMACs: in.Restore.Spec.MACAddresses == v1alpha1.IdentityNew,
	}
	for _, v := range in.Machine.Held {
		if v.Role == v1alpha1.RoleDisk {
			w.Claims[v.Name] = claimName(in, v)
		}
	}
	for field, old := range in.Machine.revisionNames() {
		if in.Machine.revision(old) != nil {
			w.Revisions[old] = revisionName(targetName(in.Restore, in.Restore.Status.From), field, in.Restore.UID)
		}
	}
	return w
}

// storeMounts are those of every Job that touches a store, and the identities where they are here. They are
// optional so that the program, not the kubelet, says what is missing.
func storeMounts(in Observed) []job.Mount {
	mounts := store.Mounts(in.Store)
	if ref := in.Restore.Spec.IdentitySecretRef; ref != nil {
		mounts = append(mounts, job.Mount{Secret: ref.Name, Path: job.PathIdentities, Optional: true})
	}
	return mounts
}
