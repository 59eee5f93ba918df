package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/test/build"
)

const chainA, chainB = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

func ref(chain string, sequence int) v1alpha1.CommitRef {
	return v1alpha1.CommitRef{
		Key:    fmt.Sprintf("c/%s/%010d-%s", chain, sequence, strings.Repeat("0", 32)),
		Digest: strings.Repeat(fmt.Sprint(sequence%10), 64), Sequence: int64(sequence),
	}
}

func entry(chain string, sequence int) v1alpha1.CatalogueEntry {
	return v1alpha1.CatalogueEntry{
		Commit: ref(chain, sequence), VMNamespace: "prod", VMName: "db", VMUID: "vm-db",
		BackupNamespace: "prod", BackupName: fmt.Sprintf("nightly-%d", sequence), BackupUID: types.UID(fmt.Sprintf("%s-%d", chain[:1], sequence)),
		TakenAt: metav1.NewMicroTime(noon), Volumes: []v1alpha1.VolumeFacts{{Name: "root", Role: v1alpha1.RoleDisk, SizeBytes: 1}},
	}
}

// own is a backup that this namespace made and stored an hour ago.
func own(name string, c v1alpha1.CommitRef) v1alpha1.VMStateBackup {
	b := build.Backup(name, "db")
	at := metav1.NewTime(noon.Add(-time.Hour))
	b.CreationTimestamp, b.Status.CompletedAt = at, &at
	b.Status.Export = &v1alpha1.ExportStatus{Commit: &c}
	return *b
}

// imported is a backup that somebody asked to be looked up an hour ago.
func imported(name string, c v1alpha1.CommitRef) v1alpha1.VMStateBackup {
	b := build.Backup(name, "db")
	b.CreationTimestamp, b.Spec.Commit = metav1.NewTime(noon.Add(-time.Hour)), &c
	return *b
}

func with(b ...v1alpha1.VMStateBackup) func(*Observed) {
	return func(in *Observed) { in.Backups = append(in.Backups, b...) }
}

func adopting(in *Observed) { in.Store.Spec.Adopt = v1alpha1.AdoptAll }

func status(change func(*v1alpha1.CatalogueStatus)) func(*Observed) {
	return func(in *Observed) {
		if in.Store.Status.Catalogue == nil {
			in.Store.Status.Catalogue = &v1alpha1.CatalogueStatus{}
		}
		change(in.Store.Status.Catalogue)
	}
}

// listing is a run under way, begun a minute ago.
func listing(scope v1alpha1.AdoptScope) func(*Observed) {
	return status(func(c *v1alpha1.CatalogueStatus) {
		at := metav1.NewTime(noon.Add(-time.Minute))
		c.Runs, c.JobName, c.LastStartedAt = 1, "vmstate-u1-list-1", &at
		c.Pass = &v1alpha1.CataloguePass{Scope: scope}
	})
}

// told is the report of a run that went well.
func told(r v1alpha1.CatalogueResult) func(*Observed) {
	return func(in *Observed) {
		if n := len(r.Entries); r.Through == "" && n > 0 {
			r.Through = r.Entries[n-1].Commit.Key
		}
		in.Chore = Task{Exists: true, Created: noon, Report: &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeSucceeded, Catalogue: &r}}
	}
}

func TestCatalogueDue(t *testing.T) {
	listed := func(ago time.Duration) func(*Observed) {
		return status(func(c *v1alpha1.CatalogueStatus) {
			at := metav1.NewTime(noon.Add(-ago))
			c.LastSucceededAt, c.LastEndedAt, c.Adopt = &at, &at, v1alpha1.AdoptAll
		})
	}
	failed := func(times int32, ago time.Duration) func(*Observed) {
		return status(func(c *v1alpha1.CatalogueStatus) {
			at := metav1.NewTime(noon.Add(-ago))
			c.LastEndedAt, c.Failures = &at, times
		})
	}
	keyless := func(in *Observed) { in.Store.Status.KeysSecretName = "" }
	asks := func(in *Observed) { in.Store.Annotations = map[string]string{v1alpha1.AnnotationImport: "now"} }
	ready := probed(time.Minute, "True")
	tests := map[string]struct {
		reason string
		in     Observed
		begins v1alpha1.AdoptScope
		after  time.Duration
	}{
		"Fresh":      {"a store that nobody asks to be listed waits for its interval", at(ready), "", 59 * time.Minute},
		"Adopting":   {"", at(ready, adopting), v1alpha1.ScopeAll, time.Second},
		"NotReady":   {"an outage is not listed", at(probed(time.Minute, "False"), adopting), "", time.Minute},
		"Adopted":    {"once is enough", at(ready, adopting, listed(time.Hour)), "", 59 * time.Minute},
		"DailyNew":   {"what others commit is found in time", at(ready, adopting, listed(24*time.Hour)), v1alpha1.ScopeNew, time.Second},
		"DailyCheck": {"a bucket that was set back is found without adopting", at(ready, listed(25*time.Hour)), v1alpha1.ScopeNone, time.Second},
		"Interval":   {"", at(ready, listed(25*time.Hour), func(in *Observed) { in.Store.Spec.Catalogue = &v1alpha1.CatalogueSpec{IntervalHours: 48} }), "", 59 * time.Minute},
		"Asked":      {"", at(ready, listed(time.Hour), asks), v1alpha1.ScopeAll, time.Second},
		"Answered":   {"", at(ready, listed(time.Hour), asks, status(func(c *v1alpha1.CatalogueStatus) { c.Request = "now" })), "", 59 * time.Minute},
		"Waiting":    {"a backup with spec.commit is looked up at once", at(ready, listed(time.Hour), with(imported("i", ref(chainA, 1)))), v1alpha1.ScopeNone, time.Second},
		"Keyless":    {"", at(ready, keyless, adopting), "", 59 * time.Minute},
		"KeylessReader": {"an identity will do", at(ready, keyless, adopting, func(in *Observed) {
			in.Store.Spec.Catalogue = &v1alpha1.CatalogueSpec{IdentitySecretRef: &v1alpha1.ObjectRef{Name: "id"}}
		}), v1alpha1.ScopeAll, time.Second},
		"Failed":        {"", at(ready, adopting, failed(1, time.Minute)), "", time.Minute},
		"FailedOften":   {"the pause doubles", at(ready, adopting, failed(4, 15*time.Minute)), "", time.Minute},
		"FailedForLong": {"and has an end", at(ready, adopting, failed(40, 6*time.Hour)), v1alpha1.ScopeAll, time.Second},
		"MorePages": {"the next page follows at once, with the scope of the first", at(ready, listed(time.Hour), status(func(c *v1alpha1.CatalogueStatus) {
			c.Pass = &v1alpha1.CataloguePass{Scope: v1alpha1.ScopeNew, After: "k"}
		})), v1alpha1.ScopeNew, time.Second},
		"ProbeGoesFirst": {"", at(adopting, func(in *Observed) { in.Store.Status.KeysSecretName = "k" }), "", 10 * time.Second},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := Plan(tc.in)
			begun := ""
			if c := d.Status.Catalogue; c != nil && c.JobName != "" {
				begun = string(c.Pass.Scope)
				if c.JobName != "vmstate-u1-list-1" || c.Runs != 1 || !c.LastStartedAt.Time.Equal(noon) {
					t.Errorf("begun as %+v", c.StoreTaskStatus)
				}
			}
			if begun != string(tc.begins) || d.RequeueAfter != tc.after {
				t.Errorf("%s: begins %q and comes back after %s, want %q and %s", tc.reason, begun, d.RequeueAfter, tc.begins, tc.after)
			}
		})
	}
	c := Plan(at(ready, keyless, adopting)).Status.Conditions
	for kind, reason := range map[string]string{v1alpha1.ConditionCatalogued: v1alpha1.ReasonNoCatalogueKey, v1alpha1.ConditionMaintained: v1alpha1.ReasonNoMaintenance} {
		if found := meta.FindStatusCondition(c, kind); found == nil || found.Reason != reason {
			t.Errorf("nobody is told what is missing: %+v", c)
		}
	}
}

func TestCatalogueJob(t *testing.T) {
	in := at(probed(time.Minute, "True"), listing(v1alpha1.ScopeAll), func(in *Observed) {
		in.Store.Spec.Catalogue = &v1alpha1.CatalogueSpec{IdentitySecretRef: &v1alpha1.ObjectRef{Name: "id"}}
		in.Store.Status.Catalogue.Pass.After = "c/x"
		in.Children = []Child{{Kind: action.KindServiceAccount, Name: "vmstate-u1-mover", UID: "1"}}
	})
	want := []action.Action{action.RunJob{Job: job.Spec{
		Name: "vmstate-u1-list-1", Task: v1alpha1.TaskCatalogue,
		Config: []byte(`{"store":{"endpoint":"https://s3.example.com","bucket":"vm-backups","region":"us-east-1","addressing":"Path","signingKey":"k1"},` +
			`"catalogue":{"after":"c/x","limit":400}}`),
		Mounts: []job.Mount{
			{Secret: "s3-write", Path: "/credentials", Optional: true},
			{Secret: "main-repository-keys", Path: "/repository-keys", Optional: true},
			{Secret: "id", Path: "/identities", Optional: true},
		},
		Deadline: catalogueLimit, Retries: 2,
	}}}
	if diff := cmp.Diff(want, Plan(in).Actions); diff != "" {
		t.Errorf("the Job of a recorded run is made, beside what is its own (-want +got):\n%s", diff)
	}
	in.Children = append(in.Children, Child{Kind: action.KindJob, Name: "vmstate-u1-setup-1", UID: "2"})
	if diff := cmp.Diff([]action.Action{action.Delete{Kind: action.KindJob, Name: "vmstate-u1-setup-1", UID: "2"}}, Plan(in).Actions); diff != "" {
		t.Errorf("what is left of a probe goes, and nothing of the run (-want +got):\n%s", diff)
	}
}

func TestCatalogueActs(t *testing.T) {
	seen := status(func(c *v1alpha1.CatalogueStatus) { c.Chains = []v1alpha1.ChainMark{{Chain: chainA, Sequence: 1}} })
	a1, a2, b1 := entry(chainA, 1), entry(chainA, 2), entry(chainB, 1)
	replaced := ref(chainA, 1)
	replaced.Digest = strings.Repeat("f", 64)
	page := told(v1alpha1.CatalogueResult{Entries: []v1alpha1.CatalogueEntry{a1, a2, b1}})
	adopt := func(e v1alpha1.CatalogueEntry) action.Action {
		return action.AdoptBackup{Name: AdoptedName(&e), Entry: e}
	}
	tests := map[string]struct {
		reason string
		in     Observed
		want   []action.Action
	}{
		"All":  {"", at(probed(0, "True"), seen, listing(v1alpha1.ScopeAll), page), []action.Action{adopt(a1), adopt(a2), adopt(b1)}},
		"New":  {"what was deleted here is not made again", at(probed(0, "True"), seen, listing(v1alpha1.ScopeNew), page), []action.Action{adopt(a2), adopt(b1)}},
		"None": {"", at(probed(0, "True"), seen, listing(v1alpha1.ScopeNone), page), nil},
		"Known": {
			"twice makes nothing twice", at(probed(0, "True"), listing(v1alpha1.ScopeAll), page, with(own("x", a1.Commit), own("y", b1.Commit))),
			[]action.Action{adopt(a2)},
		},
		"BeingExported": {
			"a backup whose export has committed and not said so yet is nobody's orphan",
			at(probed(0, "True"), listing(v1alpha1.ScopeAll), told(v1alpha1.CatalogueResult{Entries: []v1alpha1.CatalogueEntry{a1}}), func(in *Observed) {
				b := build.Backup("x", "db")
				b.UID = a1.BackupUID
				in.Backups = []v1alpha1.VMStateBackup{*b}
			}), nil,
		},
		"Waiting": {
			"", at(probed(0, "True"), listing(v1alpha1.ScopeNone), page, with(imported("i", a2.Commit))),
			[]action.Action{action.FillBackup{Name: "i", UID: "backup-i", Entry: &a2}},
		},
		"WaitingInVain": {
			"", at(probed(0, "True"), listing(v1alpha1.ScopeNone), page, with(imported("i", ref(chainA, 3)))),
			[]action.Action{action.FillBackup{Name: "i", UID: "backup-i", Failure: &v1alpha1.Failure{
				Reason: v1alpha1.ReasonCommitMissing, Message: "the backup's record is not in the store; kubectl vmstate list shows what the store holds",
			}}},
		},
		"WaitingForAnother": {
			"key and digest together name a record", at(probed(0, "True"), listing(v1alpha1.ScopeNone), page, with(imported("i", replaced))),
			[]action.Action{action.FillBackup{Name: "i", UID: "backup-i", Failure: &v1alpha1.Failure{
				Reason:  v1alpha1.ReasonCommitMissing,
				Message: "the record at that key has the digest " + a1.Commit.Digest + ", not the one of spec.commit; kubectl vmstate list shows what the store holds",
			}}},
		},
		"Gone": {
			"said at the backup, and nothing is deleted", at(probed(0, "True"), listing(v1alpha1.ScopeNone), page, with(own("x", ref(chainA, 3)))),
			[]action.Action{action.MarkBackup{Name: "x", UID: "backup-x", Condition: metav1.Condition{
				Type: "Verified", Status: "False", Reason: v1alpha1.ReasonCommitMissing, ObservedGeneration: 1,
				Message: "the backup's record is not in the store: it cannot be restored from there",
			}}},
		},
		"Unusable": {
			"it is there, and maintenance can remove it", at(probed(0, "True"), listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{
				Through: a1.Commit.Key, Damaged: []v1alpha1.CatalogueFault{{Key: a1.Commit.Key, Message: "cut"}},
			}), func(in *Observed) {
				b := own("x", a1.Commit)
				b.Status.Conditions = []metav1.Condition{{Type: "Verified", Status: "False", Reason: v1alpha1.ReasonCommitMissing}}
				in.Backups = []v1alpha1.VMStateBackup{b}
			}),
			[]action.Action{action.MarkBackup{Name: "x", UID: "backup-x", Condition: metav1.Condition{
				Type: "Verified", Status: "False", Reason: v1alpha1.ReasonCommitDamaged, ObservedGeneration: 1,
				Message: "its record in the store cannot be used: cut: it cannot be restored from there",
			}}},
		},
		"Back": {
			"", at(probed(0, "True"), listing(v1alpha1.ScopeNone), page, func(in *Observed) {
				b := own("x", a1.Commit)
				b.Status.Conditions = []metav1.Condition{{Type: "Verified", Status: "False", Reason: v1alpha1.ReasonCommitMissing}}
				in.Backups = []v1alpha1.VMStateBackup{b}
			}),
			[]action.Action{action.MarkBackup{Name: "x", UID: "backup-x", Condition: metav1.Condition{
				Type: "Verified", Status: "Unknown", Reason: v1alpha1.ReasonNotVerified, ObservedGeneration: 1, Message: "the backup's record is in the store again",
			}}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			d := Plan(tc.in)
			if diff := cmp.Diff(tc.want, d.Actions); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if done := d.Status.Catalogue.JobName == ""; done != (tc.want == nil) {
				t.Errorf("%s: the page is recorded: %v", tc.reason, done)
			}
		})
	}
}

func TestCatalogueRecords(t *testing.T) {
	a1, a2 := entry(chainA, 1), entry(chainA, 2)
	both := []v1alpha1.CatalogueEntry{a1, a2}
	marks := func(m ...v1alpha1.ChainMark) func(*Observed) {
		return status(func(c *v1alpha1.CatalogueStatus) { c.Chains = m })
	}
	marked := own("x", ref(chainA, 3))
	marked.Status.Conditions = []metav1.Condition{{Type: "Verified", Status: "False", Reason: v1alpha1.ReasonCommitMissing}}
	young := own("x", ref(chainA, 3))
	now := metav1.NewTime(noon)
	young.Status.CompletedAt = &now
	tests := map[string]struct {
		reason string
		in     Observed
		want   []v1alpha1.CatalogueFindingKind
		chains []v1alpha1.ChainMark
	}{
		"Whole": {"", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both})), nil, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 2}}},
		"Empty": {"", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{})), nil, nil},
		"Damaged": {
			"", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both, Damaged: []v1alpha1.CatalogueFault{{Key: "c/x", Message: "cut"}}})),
			[]v1alpha1.CatalogueFindingKind{v1alpha1.FindingDamaged}, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 2}},
		},
		"LinkMissing": {
			"", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both, Missing: []v1alpha1.CatalogueFault{{Key: ref(chainB, 1).Key}}})),
			[]v1alpha1.CatalogueFindingKind{v1alpha1.FindingLinkMissing}, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 2}},
		},
		"Missing": {
			"", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both}), with(marked)),
			[]v1alpha1.CatalogueFindingKind{v1alpha1.FindingMissing}, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 3}},
		},
		"StoredMeanwhile": {
			"what was stored after the listing began is not missing", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both}), with(young)),
			nil, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 3}},
		},
		"SeenMeanwhile": {
			"also after it was remembered", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both}), with(young), marks(v1alpha1.ChainMark{Chain: chainA, Sequence: 3})),
			nil, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 3}},
		},
		"SetBack": {
			"also where nobody kept the object", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both}), marks(v1alpha1.ChainMark{Chain: chainA, Sequence: 7})),
			[]v1alpha1.CatalogueFindingKind{v1alpha1.FindingRolledBack}, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 7}},
		},
		"Emptied": {
			"an empty bucket is not an answer", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{}), marks(v1alpha1.ChainMark{Chain: chainA, Sequence: 1}, v1alpha1.ChainMark{Chain: chainB, Sequence: 1})),
			[]v1alpha1.CatalogueFindingKind{v1alpha1.FindingRolledBack, v1alpha1.FindingRolledBack}, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 1}, {Chain: chainB, Sequence: 1}},
		},
		"RemovedOnPurpose": {
			"", at(listing(v1alpha1.ScopeNone), told(v1alpha1.CatalogueResult{Entries: both}), marks(v1alpha1.ChainMark{Chain: chainA, Sequence: 7, Removed: true})),
			nil, []v1alpha1.ChainMark{{Chain: chainA, Sequence: 7, Removed: true}},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			probed(0, "True")(&tc.in)
			d := Plan(tc.in)
			c := d.Status.Catalogue
			var kinds []v1alpha1.CatalogueFindingKind
			for _, f := range c.Findings {
				kinds = append(kinds, f.Kind)
			}
			if diff := cmp.Diff(tc.want, kinds); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.chains, c.Chains, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
			said, want := d.Status.Conditions[len(d.Status.Conditions)-1], metav1.ConditionTrue
			if tc.want != nil {
				want = metav1.ConditionFalse
			}
			if said.Type != v1alpha1.ConditionCatalogued || said.Status != want || c.Pass != nil || !c.LastSucceededAt.Time.Equal(noon) {
				t.Errorf("%s: said %+v, status %+v", tc.reason, said, c)
			}
		})
	}
}
