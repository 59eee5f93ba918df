package store

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/conditions"
	"github.com/vmstate/vmstate/pkg/job"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
)

const (
	// pageRecords bounds the records that one Job reads.
	pageRecords = 400
	// catalogueLimit bounds that Job.
	catalogueLimit = time.Hour
	// catalogueEvery is how often a store is listed that does not say how often.
	catalogueEvery = 24 * time.Hour
	// maxFindings bounds the findings that are kept.
	maxFindings = 50
	// maxChains bounds the chains that are remembered.
	maxChains = 2000
)

func catalogueChore() chore {
	return chore{
		task: v1alpha1.TaskCatalogue, short: "list",
		status: func(s *v1alpha1.VMStateStoreStatus) *v1alpha1.StoreTaskStatus {
			if s.Catalogue == nil {
				return nil
			}
			return &s.Catalogue.StoreTaskStatus
		},
		due: catalogueDue, begin: beginCatalogue, spec: catalogueJob, conclude: concludePage,
		failed: func(in Observed, d *Decision, reason, message string) {
			conditions.False(in.target(d), v1alpha1.ConditionCatalogued, known(reason, v1alpha1.ReasonCatalogueFailed),
				"the store could not be listed, and is tried again: "+message)
		},
		idle: func(in Observed, d *Decision) {
			if asked(in) {
				conditions.False(in.target(d), v1alpha1.ConditionCatalogued, v1alpha1.ReasonNoCatalogueKey, fmt.Sprintf(
					"the records of backups are sealed, and nothing here opens them: name a Secret with an age identity in spec.catalogue.identitySecretRef, or bring the repository's keys as Secret %q",
					KeysSecretName(in.Store)))
			}
		},
	}
}

func catalogueOf(s *v1alpha1.VMStateStoreStatus) v1alpha1.CatalogueStatus {
	if s.Catalogue == nil {
		return v1alpha1.CatalogueStatus{}
	}
	return *s.Catalogue
}

// recordsOpen says that something opens the records of backups.
func recordsOpen(s *v1alpha1.VMStateStore) bool {
	return s.Status.KeysSecretName != "" || s.Spec.Catalogue != nil && s.Spec.Catalogue.IdentitySecretRef != nil
}

// asked says that somebody waits for the store to be listed.
func asked(in Observed) bool {
	c := catalogueOf(&in.Store.Status)
	request := in.Store.Annotations[v1alpha1.AnnotationImport]
	if c.Pass != nil || request != "" && request != c.Request || in.Store.Spec.Adopt == v1alpha1.AdoptAll && c.Adopt != v1alpha1.AdoptAll {
		return true
	}
	for i := range in.Backups {
		if waits(&in.Backups[i]) {
			return true
		}
	}
	return false
}

// waits says that a backup is to be filled from its record.
func waits(b *v1alpha1.VMStateBackup) bool {
	return b.Spec.Commit != nil && b.DeletionTimestamp == nil && b.Status.CompletedAt == nil
}

func catalogueDue(in Observed) (time.Time, bool) {
	s := in.Store
	switch c := catalogueOf(&s.Status); {
	case !recordsOpen(s):
		return time.Time{}, false
	case asked(in):
		return time.Time{}, true
	case c.LastSucceededAt != nil:
		return c.LastSucceededAt.Add(catalogueInterval(s)), true
	default:
		return s.CreationTimestamp.Add(catalogueInterval(s)), true
	}
}

func catalogueInterval(s *v1alpha1.VMStateStore) time.Duration {
	if s.Spec.Catalogue == nil || s.Spec.Catalogue.IntervalHours == 0 {
		return catalogueEvery
	}
	return time.Duration(s.Spec.Catalogue.IntervalHours) * time.Hour
}

// beginCatalogue opens a listing, or goes on with the one that is open.
func beginCatalogue(in Observed, s *v1alpha1.VMStateStoreStatus) {
	if s.Catalogue == nil {
		s.Catalogue = &v1alpha1.CatalogueStatus{}
	}
	if s.Catalogue.Pass == nil {
		s.Catalogue.Pass = &v1alpha1.CataloguePass{Scope: scopeOf(in), Request: in.Store.Annotations[v1alpha1.AnnotationImport]}
	}
}

func scopeOf(in Observed) v1alpha1.AdoptScope {
	c := catalogueOf(&in.Store.Status)
	request := in.Store.Annotations[v1alpha1.AnnotationImport]
	all := in.Store.Spec.Adopt == v1alpha1.AdoptAll
	switch {
	case request != "" && request != c.Request, all && c.Adopt != v1alpha1.AdoptAll:
		return v1alpha1.ScopeAll
	case all:
		return v1alpha1.ScopeNew
	default:
		return v1alpha1.ScopeNone
	}
}

func catalogueJob(in Observed) job.Spec {
	s := in.Store
	raw, _ := moverconfig.Config{ // strings and numbers alone: it encodes
		Store: Config(s), Catalogue: &moverconfig.Catalogue{After: s.Status.Catalogue.Pass.After, Limit: pageRecords},
	}.Encode()
	mounts := Mounts(s)
	if s.Status.KeysSecretName != "" {
		mounts = append(mounts, job.Mount{Secret: s.Status.KeysSecretName, Path: job.PathRepositoryKeys, Optional: true})
	}
	if c := s.Spec.Catalogue; c != nil && c.IdentitySecretRef != nil {
		mounts = append(mounts, job.Mount{Secret: c.IdentitySecretRef.Name, Path: job.PathIdentities, Optional: true})
	}
	return job.Spec{Config: raw, Mounts: mounts, Deadline: catalogueLimit, Retries: 2}
}

// concludePage has what a page names made into objects, then records what it found.
func concludePage(in Observed, d *Decision) (done bool, wrong string) {
	result := in.Chore.Report.Catalogue
	pass := d.Status.Catalogue.Pass
	if result == nil || pass == nil {
		return false, "it does not say what the store holds"
	}
	if wrong := malformed(result, pass.After); wrong != "" {
		return false, wrong
	}
	p := newPage(in, result, pass.Scope)
	p.compare()
	if len(p.actions) > 0 {
		d.Actions = p.actions[:min(len(p.actions), atOnce)]
		return false, ""
	}
	pass.Commits += int64(len(result.Entries))
	pass.After = result.Through
	for _, f := range p.findings {
		pass.FindingCount++
		if len(pass.Findings) < maxFindings {
			pass.Findings = append(pass.Findings, f)
		}
	}
	for _, e := range result.Entries {
		chain, sequence, _ := chainOf(e.Commit.Key) // it was checked
		mark(d.Status.Catalogue, chain, sequence)
	}
	if !result.More {
		concludePass(in, d)
	}
	return true, ""
}

func concludePass(in Observed, d *Decision) {
	c := d.Status.Catalogue
	pass, now := c.Pass, metav1.NewTime(in.Now)
	c.Pass, c.LastSucceededAt = nil, &now
	c.Commits, c.Findings, c.Request = pass.Commits, pass.Findings, pass.Request
	c.Adopt = v1alpha1.AdoptNever
	if pass.Scope != v1alpha1.ScopeNone {
		c.Adopt = in.Store.Spec.Adopt
	}
	t := in.target(d)
	if pass.FindingCount == 0 {
		conditions.True(t, v1alpha1.ConditionCatalogued, v1alpha1.ReasonCatalogueComplete, fmt.Sprintf("%d backups in the store, and each that is known here is there", c.Commits))
		return
	}
	first := pass.Findings[0]
	conditions.False(t, v1alpha1.ConditionCatalogued, v1alpha1.ReasonCatalogueIncomplete, fmt.Sprintf(
		"%d backups in the store can be used; %d are not as they should be, which status.catalogue.findings lists: %s %s: %s; nothing was deleted here: find out who changed the bucket, and bring back what is missing",
		c.Commits, pass.FindingCount, first.Kind, first.Key, first.Message))
}

// remember marks the chains of the backups that are known here.
func remember(in Observed, d *Decision) {
	for i := range in.Backups {
		e := in.Backups[i].Status.Export
		if e == nil || e.Commit == nil {
			continue
		}
		chain, sequence, ok := chainOf(e.Commit.Key)
		if !ok {
			continue
		}
		if d.Status.Catalogue == nil {
			d.Status.Catalogue = &v1alpha1.CatalogueStatus{}
		}
		mark(d.Status.Catalogue, chain, sequence)
	}
}

// mark notes that a chain has come so far.
func mark(c *v1alpha1.CatalogueStatus, chain string, sequence int64) {
	for i := range c.Chains {
		if c.Chains[i].Chain == chain {
			if sequence > c.Chains[i].Sequence {
				c.Chains[i] = v1alpha1.ChainMark{Chain: chain, Sequence: sequence}
			}
			return
		}
	}
	if len(c.Chains) < maxChains {
		c.Chains = append(c.Chains, v1alpha1.ChainMark{Chain: chain, Sequence: sequence})
	}
}

// marked is how far a chain was seen to come; 0 if it was never seen.
func marked(c v1alpha1.CatalogueStatus, chain string) int64 {
	for _, m := range c.Chains {
		if m.Chain == chain {
			return m.Sequence
		}
	}
	return 0
}

// says that a backup carries a condition.
func says(b *v1alpha1.VMStateBackup, want metav1.Condition) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, want.Type)
	return c != nil && c.Status == want.Status && c.Reason == want.Reason && c.Message == want.Message
}

// lost says that the store was seen to lack this backup, or to hold a record that is of no use.
func lost(b *v1alpha1.VMStateBackup) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	return c != nil && (c.Reason == v1alpha1.ReasonCommitMissing || c.Reason == v1alpha1.ReasonCommitDamaged)
}

// Missing says that the store was seen to lack this backup's record: nothing of it can be removed
// there. One whose record is damaged can be.
func Missing(b *v1alpha1.VMStateBackup) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionVerified)
	return c != nil && c.Reason == v1alpha1.ReasonCommitMissing
}
