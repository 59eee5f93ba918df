package controllers

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
	witnessconfig "github.com/vmstate/vmstate/pkg/witness/config"
)

// play does what the Jobs and the driver would do next; false if there is nothing.
func (w *backupWorld) play() bool {
	played := false
	reports := &v1alpha1.VMStateReportList{}
	w.must(w.cluster.Client.List(w.t.Context(), reports, client.InNamespace(w.namespace)))
	for i := range reports.Items {
		r, j := &reports.Items[i], &batchv1.Job{}
		if r.Status.Outcome != "" || r.DeletionTimestamp != nil || w.mute[string(r.Spec.Task)] || !w.get(r.Name, j) {
			continue
		}
		before := r.DeepCopy()
		w.playJob(r, j.Spec.Template.Spec.Containers[0].Env[0].Value)
		raw, _ := json.Marshal(before.Status)
		if now, _ := json.Marshal(r.Status); string(raw) != string(now) {
			w.must(client.IgnoreNotFound(w.cluster.Client.Status().Update(w.t.Context(), r)))
			played = true
		}
	}
	return w.playDriver() || played
}

func (w *backupWorld) playJob(r *v1alpha1.VMStateReport, told string) {
	r.Status.PodUID = "pod"
	switch r.Spec.Task {
	case v1alpha1.TaskWitness:
		c, err := witnessconfig.Decode([]byte(told))
		w.must(err)
		w.playWitness(r, c)
	case v1alpha1.TaskExport:
		c, err := moverconfig.Decode([]byte(told))
		w.must(err)
		r.Status.Outcome, r.Status.Export = v1alpha1.OutcomeSucceeded, exported(c.Export)
	case v1alpha1.TaskSetup:
		r.Status.Outcome = v1alpha1.OutcomeSucceeded
		r.Status.Setup = &v1alpha1.SetupResult{
			Findings: []v1alpha1.Finding{}, ChecksumMode: "CRC32C", RepositoryID: "r1", Writable: true,
		}
	default:
		r.Status.Outcome = v1alpha1.OutcomeSucceeded
	}
}

func digestOf(letter string) string { return strings.Repeat(letter, 64) }

func exported(c *moverconfig.Export) *v1alpha1.ExportResult {
	out := &v1alpha1.ExportResult{
		Commit:    v1alpha1.CommitRef{Key: "v/x/c/1", Digest: digestOf("c"), Sequence: 1},
		SentBytes: 1 << 20, ReadBytes: 1 << 30, StateDigest: c.State.Digest,
		Volumes: []v1alpha1.ExportedVolume{
			{Name: c.State.VolumeName, Role: v1alpha1.RoleFirmwareState, ContentRoot: "s"},
			{Name: document.VolumeName, Role: v1alpha1.RoleSpec, ContentRoot: "d"},
		},
	}
	for _, d := range c.Disks {
		out.Volumes = append(out.Volumes, v1alpha1.ExportedVolume{Name: d.Name, Role: v1alpha1.RoleDisk, ContentRoot: d.Name})
	}
	return out
}

// playWitness reads first at once, and second when the manager has recorded the end of the cut.
func (w *backupWorld) playWitness(r *v1alpha1.VMStateReport, c witnessconfig.Config) {
	at := metav1.NewMicroTime(w.now())
	reading := &v1alpha1.WitnessReading{Digest: digestOf("1"), StartedAt: at, EndedAt: at}
	b := &v1alpha1.VMStateBackup{}
	if !w.get(c.BackupName, b) {
		return
	}
	if r.Status.Witness == nil {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: r.Name + "-0", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: "VMStateReport", Name: r.Name, UID: r.UID},
		}}}
		w.create(secret)
		r.Status.Witness = &v1alpha1.WitnessResult{StateDigest: digestOf("5"), SecretNames: []string{secret.Name}, First: reading, Guarding: c.Fence}
	}
	if c.Fence {
		w.playFence(r, b, c.Attempt)
		return
	}
	for _, a := range b.Status.Attempts {
		if a.Number == c.Attempt && a.CutEnded != nil {
			r.Status.Witness.Second, r.Status.Outcome = reading, v1alpha1.OutcomeSucceeded
			if int(c.Attempt) <= w.changes {
				reading.Digest = digestOf("2")
				r.Status.Witness.Changed = []string{"nvram/db_VARS.fd: contents"}
			}
		}
	}
	if c.Mode == witnessconfig.Offline {
		r.Status.Witness.Second, r.Status.Outcome = reading, v1alpha1.OutcomeSucceeded
	}
}

// playDriver gives contents of this namespace their handles, and lets deleted ones go.
func (w *backupWorld) playDriver() bool {
	played := w.playGroups()
	contents := &snapshotv1.VolumeSnapshotContentList{}
	w.must(w.cluster.Client.List(w.t.Context(), contents))
	for i := range contents.Items {
		c := &contents.Items[i]
		switch {
		case c.Spec.VolumeSnapshotRef.Namespace != w.namespace:
		case c.DeletionTimestamp != nil && len(c.Finalizers) > 0:
			c.Finalizers = nil
			w.must(ignoreRace(w.cluster.Client.Update(w.t.Context(), c)))
			played = true
		case c.DeletionTimestamp == nil && (c.Status == nil || c.Status.SnapshotHandle == nil) && !w.mute["Driver"]:
			handle, ready, size, created := "snap-"+c.Name, true, int64(1<<30), time.Now().UnixNano()
			if c.Spec.Source.SnapshotHandle != nil {
				handle = *c.Spec.Source.SnapshotHandle
			} else if c.Spec.Source.VolumeHandle != nil {
				handle = snapshotOf(*c.Spec.Source.VolumeHandle, cmp.Or(c.Annotations["groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle"], c.Name))
			}
			if c.Status == nil {
				c.Status = &snapshotv1.VolumeSnapshotContentStatus{}
			}
			c.Status.SnapshotHandle, c.Status.ReadyToUse, c.Status.RestoreSize, c.Status.CreationTime = &handle, &ready, &size, &created
			w.must(ignoreRace(w.cluster.Client.Status().Update(w.t.Context(), c)))
			played = true
		}
	}
	return played
}

// snapshotOf is the handle of a volume's snapshot in one cut: no two have the same.
func snapshotOf(volume, cut string) string { return "snap-of-" + volume + "-" + cut }

func (w *backupWorld) playGroups() bool {
	played := false
	contents := &groupsnapshotv1.VolumeGroupSnapshotContentList{}
	w.must(w.cluster.Client.List(w.t.Context(), contents))
	for i := range contents.Items {
		c := &contents.Items[i]
		switch {
		case c.Spec.VolumeGroupSnapshotRef.Namespace != w.namespace:
		case c.DeletionTimestamp != nil && len(c.Finalizers) > 0:
			c.Finalizers = nil
			w.must(ignoreRace(w.cluster.Client.Update(w.t.Context(), c)))
			played = true
		case c.DeletionTimestamp == nil && c.Status == nil && !w.mute["Driver"]:
			handle, ready, now := "group-"+c.Name, true, metav1.Now()
			c.Status = &groupsnapshotv1.VolumeGroupSnapshotContentStatus{VolumeGroupSnapshotHandle: &handle, ReadyToUse: &ready, CreationTime: &now}
			for _, volume := range c.Spec.Source.VolumeHandles {
				created, size := time.Now().UnixNano(), int64(1<<30)
				c.Status.VolumeSnapshotInfoList = append(c.Status.VolumeSnapshotInfoList, groupsnapshotv1.VolumeSnapshotInfo{
					VolumeHandle: volume, SnapshotHandle: snapshotOf(volume, handle), ReadyToUse: &ready, CreationTime: &created, RestoreSize: &size,
				})
			}
			w.must(ignoreRace(w.cluster.Client.Status().Update(w.t.Context(), c)))
			played = true
		}
	}
	return played
}

// ignoreRace: the real controllers write the same objects; play comes again.
func ignoreRace(err error) error {
	if client.IgnoreNotFound(err) == nil || strings.Contains(err.Error(), "the object has been modified") {
		return nil
	}
	return err
}
