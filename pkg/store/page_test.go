package store

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// TestCataloguePages: two pages are one listing.
func TestCataloguePages(t *testing.T) {
	a1, a2, b1 := entry(chainA, 1), entry(chainA, 2), entry(chainB, 1)
	kept := own("x", b1.Commit)
	in := at(probed(0, "True"), listing(v1alpha1.ScopeNone), with(kept),
		status(func(c *v1alpha1.CatalogueStatus) { c.Chains = []v1alpha1.ChainMark{{Chain: chainA, Sequence: 2}} }),
		told(v1alpha1.CatalogueResult{Entries: []v1alpha1.CatalogueEntry{a1}, More: true, Damaged: []v1alpha1.CatalogueFault{{Key: "c/1"}}}))
	d := Plan(in)
	c := d.Status.Catalogue
	if c.Pass == nil || c.Pass.After != a1.Commit.Key || c.Pass.Commits != 1 || c.Pass.FindingCount != 1 || c.LastSucceededAt != nil || c.JobName != "" {
		t.Fatalf("after the first page: %+v, %+v", c, c.Pass)
	}
	in.Store.Status = d.Status
	in.Chore = Task{}
	d = Plan(in)
	if c = d.Status.Catalogue; c.JobName != "vmstate-u1-list-2" {
		t.Fatalf("the second page is not begun: %+v", c)
	}
	in.Store.Status = d.Status
	told(v1alpha1.CatalogueResult{After: a1.Commit.Key, Entries: []v1alpha1.CatalogueEntry{a2, b1}})(&in)
	c = Plan(in).Status.Catalogue
	if c.Pass != nil || c.Commits != 3 || len(c.Findings) != 1 || c.LastSucceededAt == nil {
		t.Errorf("after the last page: %+v", c)
	}
}

// TestCatalogueFails: what is no page changes nothing but what is said.
func TestCatalogueFails(t *testing.T) {
	change := func(f func(*v1alpha1.CatalogueEntry)) func(*Observed) {
		e := entry(chainA, 1)
		f(&e)
		return told(v1alpha1.CatalogueResult{Entries: []v1alpha1.CatalogueEntry{e}})
	}
	a1 := entry(chainA, 1)
	tests := map[string]func(*Observed){
		"Nothing":    func(in *Observed) { told(v1alpha1.CatalogueResult{})(in); in.Chore.Report.Catalogue = nil },
		"OtherPage":  told(v1alpha1.CatalogueResult{After: "c/9", Through: "c/9"}),
		"Standstill": told(v1alpha1.CatalogueResult{More: true}),
		"Twice":      told(v1alpha1.CatalogueResult{Entries: []v1alpha1.CatalogueEntry{a1, a1}}),
		"Beyond":     told(v1alpha1.CatalogueResult{Through: "c/1", Entries: []v1alpha1.CatalogueEntry{a1}}),
		"Key":        change(func(e *v1alpha1.CatalogueEntry) { e.Commit.Key = "c/../x" }),
		"Sequence":   change(func(e *v1alpha1.CatalogueEntry) { e.Commit.Sequence = 9 }),
		"Digest":     change(func(e *v1alpha1.CatalogueEntry) { e.Commit.Digest = "x" }),
		"VM":         change(func(e *v1alpha1.CatalogueEntry) { e.VMName = "../x" }),
		"Namespace":  change(func(e *v1alpha1.CatalogueEntry) { e.VMNamespace = "" }),
		"UID":        change(func(e *v1alpha1.CatalogueEntry) { e.VMUID = "" }),
		"NoVolume":   change(func(e *v1alpha1.CatalogueEntry) { e.Volumes = nil }),
		"Volume":     change(func(e *v1alpha1.CatalogueEntry) { e.Volumes[0].Name = "a/b" }),
		"Role":       change(func(e *v1alpha1.CatalogueEntry) { e.Volumes[0].Role = v1alpha1.RoleSpec }),
		"Size":       change(func(e *v1alpha1.CatalogueEntry) { e.Volumes[0].SizeBytes = -1 }),
		"JobFailed":  func(in *Observed) { in.Chore = Task{Exists: true, Created: noon, Failed: "OOMKilled"} },
		"NoStart":    func(in *Observed) { in.Chore = Task{Exists: true, Created: noon.Add(-pendingLimit), Pending: "quota"} },
		"Reported": func(in *Observed) {
			in.Chore = Task{Exists: true, Created: noon, Report: &v1alpha1.VMStateReportStatus{Outcome: v1alpha1.OutcomeFailed, Reason: "Ha", Message: "no"}}
		},
	}
	for name, say := range tests {
		t.Run(name, func(t *testing.T) {
			d := Plan(at(probed(0, "True"), listing(v1alpha1.ScopeAll), say))
			c := d.Status.Catalogue
			if len(d.Actions) > 0 || c.JobName != "" || c.Failures != 1 || c.Pass == nil || c.Chains != nil {
				t.Errorf("actions %v, status %+v", d.Actions, c)
			}
			said := d.Status.Conditions[len(d.Status.Conditions)-1]
			if said.Type != v1alpha1.ConditionCatalogued || said.Status != metav1.ConditionFalse || said.Reason != v1alpha1.ReasonCatalogueFailed {
				t.Errorf("said %+v", said)
			}
		})
	}
}

func TestAdoptedName(t *testing.T) {
	tests := map[string]string{
		"nightly":               "nightly-1111111111",
		"":                      "db-1111111111",
		"Über.Nacht_":           "ber-nacht-1111111111",
		strings.Repeat("x", 80): strings.Repeat("x", 52) + "-1111111111",
	}
	for name, want := range tests {
		e := entry(chainA, 1)
		e.BackupName = name
		if got := AdoptedName(&e); got != want {
			t.Errorf("%q is adopted as %q, want %q", name, got, want)
		}
	}
}
