package backup

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/conditions"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/test/build"
)

// blocks makes the disks raw devices of a driver that tells what its snapshots hold.
func blocks(in *Observed) {
	for i := range in.Machine.Inventory.Volumes {
		v := &in.Machine.Inventory.Volumes[i]
		if v.Role == v1alpha1.RoleDisk {
			v.VolumeMode, v.Handle = "Block", "vol-"+v.Name
		}
	}
	in.Trackers = map[string]Tracker{build.Driver: {Address: "10.0.0.1:50051", Audience: "audience", CA: []byte("pem")}}
	in.Store.Spec.AuditDays = 7
}

// earlier is a stored backup of the same machine, one day older, whose snapshot is kept.
func earlier(sequence int64, change ...func(*v1alpha1.VMStateBackup)) func(*Observed) {
	return func(in *Observed) {
		b := in.Backup.DeepCopy()
		b.Name, b.UID = "earlier", "u0"
		read := metav1.NewMicroTime(noon.Add(-24 * time.Hour))
		b.Status.Export = &v1alpha1.ExportStatus{
			Commit: &v1alpha1.CommitRef{Key: "p", Digest: two, Sequence: sequence}, FullyReadAt: &read,
			Readings: []v1alpha1.VolumeReading{{Name: "root", Way: v1alpha1.ReadChanged, UnreadBytes: 1}},
			Base:     &v1alpha1.BaseSnapshots{Snapshots: []v1alpha1.CutSnapshot{{VolumeName: "root", SnapshotName: "s0", Handle: "h0"}}},
		}
		for _, c := range change {
			c(b)
		}
		in.Others = append(in.Others, b)
		if newest := Newest(in.Backup, in.Others); newest != nil {
			in.Parent = newest.Status.Export.Commit
		}
	}
}

// remembers has a store remember a finding.
func remembers(f v1alpha1.DriverFinding, change ...func(*v1alpha1.DriverFinding)) func(*Observed) {
	return func(in *Observed) {
		for _, c := range change {
			c(&f)
		}
		in.Remembered = append(in.Remembered, f)
	}
}

func policy(p v1alpha1.ChangedBlocksPolicy) func(*Observed) {
	return func(in *Observed) { in.Backup.Spec.ChangedBlocks = p }
}

// What the mover is told to ask.
func TestPlanTracking(t *testing.T) {
	asks := func(change func(*moverconfig.Tracking)) *moverconfig.Tracking {
		tracking := &moverconfig.Tracking{Address: "10.0.0.1:50051", CA: []byte("pem"), Token: "0", Snapshot: "vmstate-u1-snap-1-0", Base: "h0"}
		if change != nil {
			change(tracking)
		}
		return tracking
	}
	lied := func(b *v1alpha1.VMStateBackup) { b.Status.Export.Readings[0].UntoldBytes = 4096 }
	distrust := `the audit of backup "earlier" found that driver "` + build.Driver + `" does not tell of all changes, and no audit of this disk has found it in order since`
	finding := v1alpha1.DriverFinding{
		Driver: build.Driver, BackupName: "earlier", Commit: v1alpha1.CommitRef{Key: "c/other/1-r", Sequence: 1}, FoundAt: metav1.NewMicroTime(noon.Add(-2 * time.Hour)),
	}
	for name, tc := range map[string]struct {
		reason  string
		in      Observed
		want    *moverconfig.Tracking
		readAll string
	}{
		"First": {
			reason: "without a parent only the allocation is asked for",
			in:     at(blocks, momentOf, cutOf, reads(one)), want: asks(func(t *moverconfig.Tracking) { t.Base = "" }),
		},
		"Base": {reason: "changes since the snapshot that the parent was read from", in: at(blocks, momentOf, cutOf, reads(one), earlier(6)), want: asks(nil)},
		"BaseGone": {
			in: at(blocks, momentOf, cutOf, reads(one), earlier(6, func(b *v1alpha1.VMStateBackup) { b.Status.Export.Base = nil })),
			want: asks(func(t *moverconfig.Tracking) {
				t.Base, t.NoBase = "", `no snapshot of backup "earlier" was kept`
			}),
		},
		"OtherVolume": {
			reason: "a claim of the same name can be another volume",
			in:     at(blocks, momentOf, cutOf, reads(one), earlier(6, func(b *v1alpha1.VMStateBackup) { b.Status.Volumes[0].Handle = "other" })),
			want: asks(func(t *moverconfig.Tracking) {
				t.Base, t.NoBase = "", `the disk was another volume in backup "earlier"`
			}),
		},
		"OtherDiskKept": {
			in: at(blocks, momentOf, cutOf, reads(one), earlier(6, func(b *v1alpha1.VMStateBackup) { b.Status.Export.Base.Snapshots[0].VolumeName = "data" })),
			want: asks(func(t *moverconfig.Tracking) {
				t.Base, t.NoBase = "", `no snapshot of this disk was kept of backup "earlier"`
			}),
		},
		"AuditAskedFor": {
			in:   at(blocks, momentOf, cutOf, reads(one), earlier(6), policy(v1alpha1.ChangedBlocksAudit)),
			want: asks(func(t *moverconfig.Tracking) { t.Audit = "an audit was asked for" }),
		},
		"AuditDue": {
			reason: "a week after everything was read, everything is read again",
			in: at(blocks, momentOf, cutOf, reads(one), earlier(6, func(b *v1alpha1.VMStateBackup) {
				read := metav1.NewMicroTime(noon.Add(-7 * 24 * time.Hour))
				b.Status.Export.FullyReadAt = &read
			})),
			want: asks(func(t *moverconfig.Tracking) {
				t.Audit = "an audit was due: the disks were read in full last at 2026-11-23T12:00:00Z"
			}),
		},
		"Never": {
			in: at(blocks, momentOf, cutOf, reads(one), earlier(6), policy(v1alpha1.ChangedBlocksNever)), readAll: "spec.changedBlocks is Never",
		},
		"Distrusted": {
			reason: "a driver that told too little is compared until it tells all",
			in:     at(blocks, momentOf, cutOf, reads(one), earlier(6, lied)), want: asks(func(t *moverconfig.Tracking) { t.Audit = distrust }),
		},
		"DistrustedElsewhere": {
			reason: "the audit of another machine's disk found it, and only the store remembers",
			in:     at(blocks, momentOf, cutOf, reads(one), earlier(6), remembers(finding)), want: asks(func(t *moverconfig.Tracking) { t.Audit = distrust }),
		},
		"DistrustedFirst": {
			reason: "nor is it believed what is allocated",
			in:     at(blocks, momentOf, cutOf, reads(one), remembers(finding)), want: asks(func(t *moverconfig.Tracking) { t.Base, t.Audit = "", distrust }),
		},
		"OtherDriver":      {in: at(blocks, momentOf, cutOf, reads(one), earlier(6), remembers(finding, func(f *v1alpha1.DriverFinding) { f.Driver = "other" })), want: asks(nil)},
		"CheckedElsewhere": {in: at(blocks, momentOf, cutOf, reads(one), earlier(6), remembers(finding, func(f *v1alpha1.DriverFinding) { f.CheckedAt = &metav1.Time{Time: noon} })), want: asks(nil)},
		"AuditedSince": {
			reason: "its own audit has found it in order since",
			in:     at(blocks, momentOf, cutOf, reads(one), remembers(finding), earlier(6, func(b *v1alpha1.VMStateBackup) { b.Status.Export.Readings[0].Way = v1alpha1.ReadAudited })), want: asks(nil),
		},
		"ReadInFullSince": {
			reason: "reading everything compares nothing",
			in:     at(blocks, momentOf, cutOf, reads(one), remembers(finding), earlier(6, func(b *v1alpha1.VMStateBackup) { b.Status.Export.Readings[0].Way = v1alpha1.ReadAll })),
			want:   asks(func(t *moverconfig.Tracking) { t.Audit = distrust }),
		},
		"UsedSince": {
			reason: "the backup whose audit found it in order is gone, and one after it was made on its word",
			in: at(blocks, momentOf, cutOf, reads(one), remembers(finding), earlier(6, func(b *v1alpha1.VMStateBackup) {
				read := metav1.NewMicroTime(noon.Add(-time.Hour))
				b.Status.Export.Readings[0].FullyReadAt = &read
			})), want: asks(nil),
		},
		"NotKnownWhenRead": {
			reason: "if nobody knows when everything was read, it is read now",
			in:     at(blocks, momentOf, cutOf, reads(one), earlier(6, func(b *v1alpha1.VMStateBackup) { b.Status.Export.FullyReadAt = nil })),
			want: asks(func(t *moverconfig.Tracking) {
				t.Audit = "an audit was due: it is not known when the disks were last read in full"
			}),
		},
		"TrustedAgain": {
			reason: "a person has looked into it",
			in: at(blocks, momentOf, cutOf, reads(one), earlier(6, lied, func(b *v1alpha1.VMStateBackup) {
				b.Annotations = map[string]string{v1alpha1.AnnotationDriverChecked: "yes"}
			})),
			want: asks(nil),
		},
		"NoService":  {in: at(blocks, momentOf, cutOf, reads(one), earlier(6), func(in *Observed) { in.Trackers = nil })},
		"Filesystem": {reason: "an image tells its holes by itself", in: at(func(in *Observed) { trackers := *in; blocks(&trackers); in.Trackers = trackers.Trackers }, machine(inv()), momentOf, cutOf, reads(one))},
	} {
		t.Run(name, func(t *testing.T) {
			disk := exportConfig(tc.in).Export.Disks[0]
			if diff := cmp.Diff(tc.want, disk.Tracking); diff != "" || disk.ReadAll != tc.readAll {
				t.Errorf("%s: read all %q, want %q; tracking (-want +got):\n%s", tc.reason, disk.ReadAll, tc.readAll, diff)
			}
			if n := len(exportJob(tc.in).Audiences); (n == 1) != (tc.want != nil) {
				t.Errorf("%s: %d audiences", tc.reason, n)
			}
		})
	}
}

// What is recorded of an export, and what is kept for the next one.
func TestPlanBase(t *testing.T) {
	exported := func(r v1alpha1.VolumeReading) func(*Observed) {
		return func(in *Observed) {
			in.Export = Task{Exists: true, Started: true, Report: &v1alpha1.VMStateReportStatus{
				Outcome: v1alpha1.OutcomeSucceeded,
				Export: &v1alpha1.ExportResult{
					Commit: v1alpha1.CommitRef{Key: "c", Digest: one, Sequence: 7}, StateDigest: five,
					Volumes: []v1alpha1.ExportedVolume{
						{Name: "root", Role: v1alpha1.RoleDisk, Reading: &r}, {Name: stateClaimOfDB, Role: v1alpha1.RoleFirmwareState}, {Name: "vmstate.spec", Role: v1alpha1.RoleSpec},
					},
				},
			}}
		}
	}
	day := metav1.NewMicroTime(noon.Add(-24 * time.Hour))
	all, changed := v1alpha1.VolumeReading{Way: v1alpha1.ReadAll}, v1alpha1.VolumeReading{Way: v1alpha1.ReadChanged, UnreadBytes: 5, FullyReadAt: &day}
	first := v1alpha1.VolumeReading{Way: v1alpha1.ReadAllocated, FullyReadAt: &metav1.MicroTime{Time: noon.Add(time.Second)}}
	lie := v1alpha1.VolumeReading{Way: v1alpha1.ReadAudited, UntoldBytes: 5}
	for name, tc := range map[string]struct {
		reason string
		in     Observed
		keeps  bool
		full   time.Duration // of FullyReadAt, from noon
	}{
		"Full":       {in: at(blocks, momentOf, cutOf, exported(all), earlier(6)), keeps: true, full: time.Second},
		"Changed":    {reason: "when all was read last is what the repository says", in: at(blocks, momentOf, cutOf, exported(changed), earlier(6)), keeps: true, full: -24 * time.Hour},
		"ParentGone": {reason: "whether or not the backup before is still an object", in: at(blocks, momentOf, cutOf, exported(changed)), keeps: true, full: -24 * time.Hour},
		"NotTold":    {reason: "what is not told is not made up", in: at(blocks, momentOf, cutOf, exported(v1alpha1.VolumeReading{Way: v1alpha1.ReadChanged}), earlier(6)), keeps: true},
		"First":      {reason: "a chain's first counts as read in full", in: at(blocks, momentOf, cutOf, exported(first)), keeps: true, full: time.Second},
		"Lied":       {reason: "the next audit compares against it", in: at(blocks, momentOf, cutOf, exported(lie), earlier(6)), keeps: true, full: time.Second},
		"Never":      {in: at(blocks, momentOf, cutOf, exported(all), policy(v1alpha1.ChangedBlocksNever)), full: time.Second},
		"NoService":  {reason: "nothing is kept where nobody can be asked", in: at(blocks, momentOf, cutOf, exported(all), func(in *Observed) { in.Trackers = nil }), full: time.Second},
		"Filesystem": {in: at(momentOf, cutOf, exported(all)), full: time.Second},
		"Gone":       {reason: "a snapshot that is gone is not kept", in: at(blocks, momentOf, exported(all)), full: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			got := Plan(tc.in).Status.Export
			if got.Commit == nil || (got.Base != nil) != tc.keeps || len(got.Readings) != 1 || got.Readings[0].Name != "root" {
				t.Fatalf("%s: %+v", tc.reason, got)
			}
			switch {
			case tc.full == 0 && got.FullyReadAt != nil:
				t.Errorf("%s: fully read at %s", tc.reason, got.FullyReadAt)
			case tc.full == 0:
			case got.FullyReadAt == nil || got.FullyReadAt.Sub(noon) != tc.full:
				t.Errorf("%s: fully read at %s, want %s from noon", tc.reason, got.FullyReadAt, tc.full)
			}
		})
	}
}

// How long snapshots are kept: until nobody can ask about them any more, and then in order.
func TestPlanHold(t *testing.T) {
	holding := func(in *Observed) {
		momentOf(in)
		completed := metav1.NewTime(noon)
		in.Backup.Finalizers = nil
		in.Backup.Status.CompletedAt = &completed
		in.Backup.Status.Export = &v1alpha1.ExportStatus{
			Commit:   &v1alpha1.CommitRef{Key: "c", Digest: one, Sequence: 7},
			Readings: []v1alpha1.VolumeReading{{Name: "root", Way: v1alpha1.ReadChanged}},
			Base:     &v1alpha1.BaseSnapshots{Snapshots: []v1alpha1.CutSnapshot{{VolumeName: "root", SnapshotName: "vmstate-u1-snap-1-0"}}},
		}
		in.Children = []Child{
			{Kind: action.KindVolumeSnapshot, Name: "vmstate-u1-snap-1-0", UID: "us", Bound: true},
			{Kind: action.KindVolumeSnapshot, Name: "another", UID: "ua", Bound: true},
		}
	}
	gone := func(in *Observed) { in.Children = nil }
	removes := []action.Action{action.Delete{Kind: action.KindVolumeSnapshot, Name: "vmstate-u1-snap-1-0", UID: "us"}}
	for name, tc := range map[string]struct {
		reason string
		in     Observed
		want   []action.Action
		after  time.Duration
		keeps  bool
	}{
		"Newest":      {reason: "the next backup asks about it", in: at(blocks, holding, earlier(6)), after: holdPause, keeps: true},
		"Followed":    {reason: "the next backup is stored", in: at(blocks, holding, earlier(8)), want: removes, after: lookAgain, keeps: true},
		"NotYet":      {reason: "the next backup is not stored yet", in: at(blocks, holding, earlier(8, func(b *v1alpha1.VMStateBackup) { b.Status.Export.Commit = nil })), after: holdPause, keeps: true},
		"OtherStore":  {in: at(blocks, holding, earlier(8, func(b *v1alpha1.VMStateBackup) { b.Spec.StoreRef = &v1alpha1.ObjectRef{Name: "other"} })), after: holdPause, keeps: true},
		"MachineGone": {in: at(blocks, holding, func(in *Observed) { in.MachineGone = true }), want: removes, after: lookAgain, keeps: true},
		"StoreGone":   {in: at(blocks, holding, func(in *Observed) { in.Store = nil }), want: removes, after: lookAgain, keeps: true},
		"Removed":     {reason: "the record goes when the snapshots are gone", in: at(blocks, holding, gone, earlier(8))},
		"TwoAtOnce":   {reason: "of two with one sequence, one keeps its snapshots", in: at(blocks, holding, earlier(7)), after: holdPause, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := Plan(tc.in)
			if diff := cmp.Diff(tc.want, got.Actions); diff != "" || got.RequeueAfter != tc.after || got.State != conditions.Done {
				t.Errorf("%s: %s after %s; actions (-want +got):\n%s", tc.reason, got.Message, got.RequeueAfter, diff)
			}
			if (got.Status.Export.Base != nil) != tc.keeps {
				t.Errorf("%s: base %+v", tc.reason, got.Status.Export.Base)
			}
		})
	}
}

// What an audit found is said of the backup that found it, and of those that it makes doubtful.
func TestPlanFindings(t *testing.T) {
	stored := func(sequence int64, r v1alpha1.VolumeReading) func(*Observed) {
		return func(in *Observed) {
			momentOf(in)
			completed := metav1.NewTime(noon)
			in.Backup.Finalizers, in.Backup.Status.CompletedAt = nil, &completed
			r.Name = "root"
			in.Backup.Status.Export = &v1alpha1.ExportStatus{
				Commit: &v1alpha1.CommitRef{Key: "c", Digest: one, Sequence: sequence}, Readings: []v1alpha1.VolumeReading{r},
			}
		}
	}
	other := func(name string, sequence int64, r v1alpha1.VolumeReading) func(*Observed) {
		return earlier(sequence, func(b *v1alpha1.VMStateBackup) {
			r.Name = "root"
			b.Name, b.UID, b.Status.Export.Readings = name, build.Claim(name).UID, []v1alpha1.VolumeReading{r}
		})
	}
	full := v1alpha1.VolumeReading{Way: v1alpha1.ReadAll}
	changed := v1alpha1.VolumeReading{Way: v1alpha1.ReadChanged, UnreadBytes: 5}
	allocated := v1alpha1.VolumeReading{Way: v1alpha1.ReadAllocated}
	fault := v1alpha1.VolumeReading{Way: v1alpha1.ReadAudited, UntoldBytes: 16384, UntoldAt: 4096}
	audited := v1alpha1.VolumeReading{Way: v1alpha1.ReadAudited}
	day := metav1.NewMicroTime(noon.Add(-24 * time.Hour))
	stale := v1alpha1.VolumeReading{Way: v1alpha1.ReadChanged, FullyReadAt: &day}
	elsewhere := v1alpha1.DriverFinding{
		Driver: build.Driver, BackupName: "web", Commit: v1alpha1.CommitRef{Key: "c/other/1-r", Sequence: 1}, FoundAt: metav1.NewMicroTime(noon.Add(time.Hour)),
	}
	for name, tc := range map[string]struct {
		reason string
		in     Observed
		want   string
	}{
		"Nothing":      {in: at(blocks, stored(7, changed), other("a", 8, full))},
		"Finder":       {in: at(blocks, stored(9, fault)), want: v1alpha1.ConditionDriverTrusted + "=False"},
		"TakenOver":    {in: at(blocks, stored(7, changed), other("a", 9, fault)), want: v1alpha1.ConditionSuspect + "=True"},
		"Allocated":    {reason: "zeros on the driver's word are doubtful as well", in: at(blocks, stored(7, allocated), other("a", 9, fault)), want: v1alpha1.ConditionSuspect + "=True"},
		"ReadInFull":   {reason: "what was read in full is what it was", in: at(blocks, stored(7, full), other("a", 9, fault))},
		"FullBetween":  {reason: "a full reading does not notice what an earlier backup was not told of", in: at(blocks, stored(7, changed), other("f", 8, full), other("a", 9, fault)), want: v1alpha1.ConditionSuspect + "=True"},
		"AuditBetween": {reason: "an audit found the driver honest until then", in: at(blocks, stored(7, changed), other("f", 8, audited), other("a", 9, fault))},
		"Later":        {reason: "an earlier audit says nothing of a later backup", in: at(blocks, stored(10, changed), other("a", 9, fault))},
		"AuditAfterFull": {
			reason: "an audit after a full reading does not speak for what is before that",
			in:     at(blocks, stored(7, changed), other("f", 8, full), other("g", 9, audited), other("a", 10, fault)), want: v1alpha1.ConditionSuspect + "=True",
		},
		"GapBeforeAudit": {
			reason: "nobody knows what the backup between was",
			in:     at(blocks, stored(7, changed), other("g", 9, audited), other("a", 10, fault)), want: v1alpha1.ConditionSuspect + "=True",
		},
		"OtherMachine":        {reason: "one driver for all machines", in: at(blocks, stored(7, changed), remembers(elsewhere)), want: v1alpha1.ConditionSuspect + "=True"},
		"OtherMachineAudited": {reason: "this machine's audit found it in order", in: at(blocks, stored(7, changed), other("a", 8, audited), remembers(elsewhere))},
		"OtherMachineLater": {reason: "a backup after the finding was read in full, or audited", in: at(blocks, stored(7, changed), remembers(elsewhere, func(f *v1alpha1.DriverFinding) {
			f.FoundAt = metav1.NewMicroTime(noon.Add(-time.Hour))
		}))},
		"OtherMachineOvertaken": {reason: "made on the driver's word after the finding, and nothing was read in full since", in: at(blocks, stored(7, stale), remembers(elsewhere, func(f *v1alpha1.DriverFinding) {
			f.FoundAt = metav1.NewMicroTime(noon.Add(-time.Hour))
		})), want: v1alpha1.ConditionSuspect + "=True"},
		"FinderChecked": {reason: "a person has looked into it, and told the store", in: at(blocks, stored(9, fault), remembers(elsewhere, func(f *v1alpha1.DriverFinding) {
			f.Commit, f.CheckedAt = v1alpha1.CommitRef{Key: "c", Digest: one, Sequence: 9}, &metav1.Time{Time: noon}
		})), want: v1alpha1.ConditionDriverTrusted + "=True"},
		"OtherDisk": {in: at(blocks, stored(7, changed), earlier(9, func(b *v1alpha1.VMStateBackup) {
			b.Status.Export.Readings = []v1alpha1.VolumeReading{{Name: "data", Way: v1alpha1.ReadAudited, UntoldBytes: 1}}
		}))},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, f := range Plan(tc.in).Findings {
				got += f.Condition + "=" + string(f.Status)
			}
			if got != tc.want {
				t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
