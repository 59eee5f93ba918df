package store

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
)

// atOnce bounds the objects that one pass makes or changes.
const atOnce = 50

// A report is written by a pod, whose account others can borrow: what is made into objects has
// the form that the engine gives it.
var (
	keyForm    = regexp.MustCompile(`^c/([0-9a-f]{32})/([0-9]{10,19})-[0-9a-f]{32}$`)
	digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
	nameForm   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
	volumeForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)
)

// maxVolumes bounds the volumes of an entry, as the format does.
const maxVolumes = 256

// chainOf takes the key of a commit apart: the folder of its virtual machine, and its sequence.
func chainOf(key string) (chain string, sequence int64, ok bool) {
	m := keyForm.FindStringSubmatch(key)
	if m == nil {
		return "", 0, false
	}
	sequence, err := strconv.ParseInt(m[2], 10, 64)
	return m[1], sequence, err == nil && sequence > 0
}

// malformed says why a report is not the page behind a key.
func malformed(r *v1alpha1.CatalogueResult, after string) string {
	if r.After != after || r.Through < after || r.More && r.Through == after {
		return fmt.Sprintf("it speaks of the keys from %q to %q, asked for were those behind %q", r.After, r.Through, after)
	}
	last := after
	for i := range r.Entries {
		e := &r.Entries[i]
		if e.Commit.Key <= last || e.Commit.Key > r.Through {
			return fmt.Sprintf("key %q is not in its place", e.Commit.Key)
		}
		last = e.Commit.Key
		if why := odd(e); why != "" {
			return fmt.Sprintf("the entry of %q has %s", e.Commit.Key, why)
		}
	}
	return ""
}

// odd says what of an entry no engine wrote.
func odd(e *v1alpha1.CatalogueEntry) string {
	_, sequence, ok := chainOf(e.Commit.Key)
	switch {
	case !ok || e.Commit.Sequence != sequence:
		return "a key that is none"
	case !digestForm.MatchString(e.Commit.Digest):
		return "a digest that is none"
	case !nameForm.MatchString(e.VMName) || len(e.VMName) > 63 || !nameForm.MatchString(e.VMNamespace) || len(e.VMNamespace) > 63:
		return "the name of no virtual machine"
	case e.VMUID == "" || len(e.VMUID) > 64 || len(e.BackupUID) > 64:
		return "a UID that is none"
	case len(e.BackupName) > 253 || len(e.BackupNamespace) > 63:
		return "the name of no backup"
	case len(e.Volumes) == 0 || len(e.Volumes) > maxVolumes:
		return fmt.Sprintf("%d volumes", len(e.Volumes))
	}
	for i, v := range e.Volumes {
		known := v.Role == v1alpha1.RoleDisk || v.Role == v1alpha1.RoleFirmwareState
		twice := slices.ContainsFunc(e.Volumes[:i], func(o v1alpha1.VolumeFacts) bool { return o.Name == v.Name })
		if !known || twice || v.SizeBytes < 0 || !volumeForm.MatchString(v.Name) || len(v.Name) > 253 {
			return "a volume that is none"
		}
	}
	return ""
}

// AdoptedName is the object of a backup that is in a store: readable, the same each time, and
// of no other commit. At most 63 characters.
func AdoptedName(e *v1alpha1.CatalogueEntry) string {
	const digits = 10
	base := strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(e.BackupName)), "-")
	if base == "" {
		base = e.VMName
	}
	if room := 63 - digits - 1; len(base) > room {
		base = strings.TrimRight(base[:room], "-")
	}
	return base + "-" + e.Commit.Digest[:digits]
}

// page compares what a store holds with what is known here.
type page struct {
	in     Observed
	result *v1alpha1.CatalogueResult
	scope  v1alpha1.AdoptScope
	seen   v1alpha1.CatalogueStatus

	byKey    map[string][]*v1alpha1.VMStateBackup
	byUID    map[string]*v1alpha1.VMStateBackup
	byName   map[string]*v1alpha1.VMStateBackup
	actions  []action.Action
	findings []v1alpha1.CatalogueFinding
}

func newPage(in Observed, r *v1alpha1.CatalogueResult, scope v1alpha1.AdoptScope) *page {
	p := &page{
		in: in, result: r, scope: scope, seen: catalogueOf(&in.Store.Status),
		byKey: map[string][]*v1alpha1.VMStateBackup{}, byUID: map[string]*v1alpha1.VMStateBackup{}, byName: map[string]*v1alpha1.VMStateBackup{},
	}
	for i := range in.Backups {
		b := &in.Backups[i]
		p.byUID[string(b.UID)], p.byName[b.Name] = b, b
		if key := commitOf(b).Key; key != "" {
			p.byKey[key] = append(p.byKey[key], b)
		}
	}
	return p
}

// commitOf is the commit that a backup has, or asks for.
func commitOf(b *v1alpha1.VMStateBackup) v1alpha1.CommitRef {
	switch {
	case b.Status.Export != nil && b.Status.Export.Commit != nil:
		return *b.Status.Export.Commit
	case b.Spec.Commit != nil:
		return *b.Spec.Commit
	default:
		return v1alpha1.CommitRef{}
	}
}

// compare fills actions and findings. Actions are only what is not done yet, so the last look has none.
func (p *page) compare() {
	there := map[string]bool{}
	for i := range p.result.Entries {
		e := &p.result.Entries[i]
		there[e.Commit.Key] = true
		if known := p.byKey[e.Commit.Key]; len(known) > 0 {
			for _, b := range known {
				p.meet(b, e)
			}
			continue
		}
		p.consider(e)
	}
	for _, f := range p.result.Damaged {
		there[f.Key] = true
		p.find(v1alpha1.FindingDamaged, f.Key, nil, f.Message)
		for _, b := range p.byKey[f.Key] {
			p.refuse(b, v1alpha1.ReasonCommitDamaged, "its record in the store cannot be used: "+f.Message)
		}
	}
	for _, f := range p.result.Missing {
		p.find(v1alpha1.FindingLinkMissing, f.Key, nil, f.Message)
	}
	for i := range p.in.Backups {
		b := &p.in.Backups[i]
		if key := commitOf(b).Key; p.covers(key) && !there[key] {
			p.miss(b, key)
		}
	}
	p.rolledBack(there)
}

// covers says that the page speaks of a key.
func (p *page) covers(key string) bool {
	return key != "" && key > p.result.After && (key <= p.result.Through || !p.result.More)
}

func (p *page) find(kind v1alpha1.CatalogueFindingKind, key string, b *v1alpha1.VMStateBackup, message string) {
	f := v1alpha1.CatalogueFinding{Kind: kind, Key: limited(key), Message: limited(message)}
	if b != nil {
		f.BackupName = b.Name
	}
	p.findings = append(p.findings, f)
}

// limited bounds a text that a report wrote.
func limited(s string) string {
	if len(s) > 300 {
		return strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}

// meet compares an object with the record at its commit's key.
func (p *page) meet(b *v1alpha1.VMStateBackup, e *v1alpha1.CatalogueEntry) {
	other := commitOf(b).Digest != e.Commit.Digest
	switch {
	case other && waits(b):
		p.refuse(b, v1alpha1.ReasonCommitMissing, fmt.Sprintf("the record at that key has the digest %s, not the one of spec.commit", e.Commit.Digest))
	case other:
		p.find(v1alpha1.FindingReplaced, e.Commit.Key, b, "another record is in the place of this backup's: "+e.Commit.Digest)
		p.refuse(b, v1alpha1.ReasonCommitMissing, "another record is in the place of this backup's in the store")
	case waits(b):
		p.actions = append(p.actions, action.FillBackup{Name: b.Name, UID: b.UID, Entry: e})
	case lost(b):
		p.mark(b, metav1.ConditionUnknown, v1alpha1.ReasonNotVerified, "the backup's record is in the store again")
	}
}

// consider adopts what nothing here stands for, if that is wanted.
func (p *page) consider(e *v1alpha1.CatalogueEntry) {
	chain, sequence, _ := chainOf(e.Commit.Key) // it was checked
	wanted := p.scope == v1alpha1.ScopeAll || p.scope == v1alpha1.ScopeNew && sequence > marked(p.seen, chain)
	if own := p.byUID[string(e.BackupUID)]; !wanted || own != nil {
		return // its own export will say so
	}
	name := AdoptedName(e)
	if taken := p.byName[name]; taken != nil {
		p.find(v1alpha1.FindingNameTaken, e.Commit.Key, taken, fmt.Sprintf("it would be adopted as %q, which is another backup: delete that one if it is not needed", name))
		return
	}
	p.actions = append(p.actions, action.AdoptBackup{Name: name, Entry: *e})
}

// miss says that the store lacks what an object stands for. One that asked for its removal, or was
// made after the store was listed, does not count.
func (p *page) miss(b *v1alpha1.VMStateBackup, key string) {
	started := p.seen.LastStartedAt
	if b.DeletionTimestamp != nil || started == nil || !since(b).Before(started) {
		return
	}
	if !waits(b) && b.Status.CompletedAt != nil && b.Status.Failure == nil {
		p.find(v1alpha1.FindingMissing, key, b, "the backup's record is not in the store any more")
	}
	p.refuse(b, v1alpha1.ReasonCommitMissing, "the backup's record is not in the store")
}

// since is when an object began to stand for its commit.
func since(b *v1alpha1.VMStateBackup) *metav1.Time {
	if b.Status.CompletedAt != nil {
		return b.Status.CompletedAt
	}
	return &b.CreationTimestamp
}

// refuse ends an object that waits, and marks one that was whole.
func (p *page) refuse(b *v1alpha1.VMStateBackup, reason, why string) {
	switch {
	case waits(b):
		p.actions = append(p.actions, action.FillBackup{Name: b.Name, UID: b.UID, Failure: &v1alpha1.Failure{
			Reason: reason, Message: why + "; kubectl vmstate list shows what the store holds",
		}})
	case b.Status.Failure == nil && b.DeletionTimestamp == nil && !(lost(b) && Missing(b) == (reason == v1alpha1.ReasonCommitMissing)):
		p.mark(b, metav1.ConditionFalse, reason, why+": it cannot be restored from there")
	}
}

func (p *page) mark(b *v1alpha1.VMStateBackup, status metav1.ConditionStatus, reason, message string) {
	p.actions = append(p.actions, action.MarkBackup{Name: b.Name, UID: b.UID, Condition: metav1.Condition{
		Type: v1alpha1.ConditionVerified, Status: status, Reason: reason, Message: message, ObservedGeneration: b.Generation,
	}})
}

// rolledBack looks for chains that end before what was seen of them. A chain that goes on behind
// the page is looked at with its end; one whose newest backup has an object, with that.
func (p *page) rolledBack(there map[string]bool) {
	newest := map[string]int64{}
	for key := range there {
		if chain, sequence, ok := chainOf(key); ok {
			newest[chain] = max(newest[chain], sequence)
		}
	}
	for _, m := range p.seen.Chains {
		end := fmt.Sprintf("c/%s/%010d-", m.Chain, m.Sequence)
		whole := p.covers(end) && (!p.result.More || p.result.Through > "c/"+m.Chain+"/~")
		known := slices.ContainsFunc(p.in.Backups, func(b v1alpha1.VMStateBackup) bool { return strings.HasPrefix(commitOf(&b).Key, end) })
		if whole && !known && !m.Removed && newest[m.Chain] < m.Sequence {
			p.find(v1alpha1.FindingRolledBack, strings.TrimSuffix(end, "-"), nil, fmt.Sprintf(
				"backup %d of this virtual machine was seen here, and the store holds none that new", m.Sequence))
		}
	}
}
