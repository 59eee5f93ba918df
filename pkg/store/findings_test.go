package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// audited is a stored backup whose audit found fault with a driver.
func audited(name string, at time.Time, change ...func(*v1alpha1.VMStateBackup)) v1alpha1.VMStateBackup {
	b := v1alpha1.VMStateBackup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Status.Moment = &v1alpha1.Moment{CutEnded: metav1.NewMicroTime(at)}
	disk := v1alpha1.BackupVolume{VolumeFacts: v1alpha1.VolumeFacts{Name: "root", Role: v1alpha1.RoleDisk, Driver: "csi"}, Outcome: v1alpha1.VolumeIncluded}
	b.Status.Volumes = []v1alpha1.BackupVolume{disk}
	b.Status.Export = &v1alpha1.ExportStatus{
		Commit:   &v1alpha1.CommitRef{Key: "c/vm/" + name, Sequence: 1},
		Readings: []v1alpha1.VolumeReading{{Name: "root", Way: v1alpha1.ReadAudited, UntoldBytes: 4096}},
	}
	for _, c := range change {
		c(&b)
	}
	return b
}

// What audits found is remembered when their backups are gone, until a person says that the driver is repaired.
func TestNotice(t *testing.T) {
	begin := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := &v1alpha1.VMStateStore{}
	plan := func(backups ...v1alpha1.VMStateBackup) []v1alpha1.DriverFinding {
		t.Helper()
		begin = begin.Add(time.Hour)
		d := Plan(Observed{Now: begin, Store: s, Backups: backups})
		s.Status.DriverFindings = d.Status.DriverFindings
		return d.Status.DriverFindings
	}
	first, second := audited("one", begin), audited("two", begin.Add(time.Minute))
	found := v1alpha1.DriverFinding{
		Driver: "csi", BackupName: "one", Commit: *first.Status.Export.Commit, DiskName: "root", UntoldBytes: 4096, FoundAt: first.Status.Moment.CutEnded,
	}
	want := func(what string, got []v1alpha1.DriverFinding, want ...v1alpha1.DriverFinding) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want("without fault", plan(audited("clean", begin, func(b *v1alpha1.VMStateBackup) { b.Status.Export.Readings[0].UntoldBytes = 0 })))
	want("not stored", plan(audited("failed", begin, func(b *v1alpha1.VMStateBackup) { b.Status.Export.Commit = nil })))
	want("found", plan(first), found)
	want("gone", plan(), found)
	s.Annotations = map[string]string{v1alpha1.AnnotationDriverChecked: "other, csix 5"}
	want("another driver checked", plan(), found)
	s.Annotations[v1alpha1.AnnotationDriverChecked] = "other 1, csi 1"
	checked := found
	got := plan()
	checked.CheckedAt = &metav1.Time{Time: begin}
	want("checked", got, checked)
	again := found
	again.BackupName, again.Commit, again.FoundAt, again.Before = "two", *second.Status.Export.Commit, second.Status.Moment.CutEnded, "other 1, csi 1"
	want("found again", plan(second), checked, again)
	want("an old word says nothing of it", plan(), checked, again)
	s.Annotations[v1alpha1.AnnotationDriverChecked] = "csi 2"
	got = plan()
	again.CheckedAt = &metav1.Time{Time: begin}
	want("checked again", got, checked, again)
	third := audited("three", begin.Add(time.Minute), func(b *v1alpha1.VMStateBackup) {
		b.Annotations = map[string]string{v1alpha1.AnnotationDriverChecked: "yes"}
	})
	if got := plan(third); len(got) != 3 || got[2].CheckedAt == nil {
		t.Errorf("checked on the backup: %+v", got)
	}
}

// The list is bounded, and the newest word on each driver stays.
func TestNoticeBounded(t *testing.T) {
	begin := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	backups := []v1alpha1.VMStateBackup{audited("other", begin, func(b *v1alpha1.VMStateBackup) { b.Status.Volumes[0].Driver = "old" })}
	for i := range 3 * maxDriverFindings {
		backups = append(backups, audited(fmt.Sprint(i), begin.Add(time.Duration(i+1)*time.Minute)))
	}
	got := Plan(Observed{Now: begin.Add(time.Hour), Store: &v1alpha1.VMStateStore{}, Backups: backups}).Status.DriverFindings
	if len(got) != maxDriverFindings || got[0].Driver != "old" || got[maxDriverFindings-1].BackupName != fmt.Sprint(3*maxDriverFindings-1) {
		t.Errorf("%d findings, from %+v to %+v", len(got), got[0], got[len(got)-1])
	}
}
