package repository_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// holds is what must be true when an object of some kind is harmed.
type holds int

const (
	// needed: a backup that stands on it is refused, and the refusal names it; or gives exactly what was backed up.
	needed holds = iota
	// spare: whoever had no need of it restores as before; for the later recipient it is needed, and a refusal may name
	// the file that this one is beside, since nobody knows of one that is gone.
	spare
	// control: everybody restores as before, whatever was done to it.
	control
)

// marked is the marker in the place of a commit, which FORMAT.md tells below its table.
const marked = "marker at c/<vm>/<seq>-<run>"

// kinds are all kinds of objects, by their keys in section 1 of FORMAT.md. Of each of them holds as well that garbage
// collection on the harmed store deletes nothing that a backup needs which nobody asked to remove.
var kinds = map[string]holds{
	"format.json": needed, "k/<epoch>.age": needed, "k/<epoch>-<set>.age": spare,
	"c/<vm>/<seq>-<run>": needed, marked: control,
	"r/<vm>/<run>/k<a>.age": needed, "r/<vm>/<run>/k<a>-<any>.age": spare,
	"r/<vm>/<run>/p<a>-<n>": needed, "r/<vm>/<run>/i<a>-<n>": needed,
	"s/<vm>/<run>": control, "s/<vm>/<run>.done": control, "t/<vm>/<seq>-<run>": control,
	"a/maintenance-<n>": control, "a/candidates-<n>": control, "o/<n>": control,
	"a/proof-<recipient>": control, "a/distrust-<n>": control,
}

// rowsOfFormat are the keys in the table of section 1 of FORMAT.md.
func rowsOfFormat(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("FORMAT.md")
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## 1. Objects\n")
	section, _, _ = strings.Cut(section, "\n## 2.")
	var out []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for i, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			if rest, ok := strings.CutPrefix(m[1], "…"); ok && i > 0 {
				m[1] = out[len(out)-1][:strings.LastIndexByte(out[len(out)-1], '/')] + rest
			}
			out = append(out, m[1])
		}
	}
	return out
}

// formOf is the pattern of the keys that a row tells.
func formOf(row string) *regexp.Regexp {
	form := regexp.QuoteMeta(row)
	for field, digits := range map[string]string{
		"vm": `[0-9a-f]{32}`, "run": `[0-9a-f]{32}`, "set": `[0-9a-f]{16}`, "any": `[0-9a-f]{16}`, "recipient": `[0-9a-f]{16}`,
		"seq": `\d{10,}`, "n": `\d+`, "a": `\d+`, "epoch": `\d+`,
	} {
		form = strings.ReplaceAll(form, "<"+field+">", digits)
	}
	return regexp.MustCompile("^" + form + "$")
}

// kindsOf sorts objects by kind. An object of no kind, a kind without an object, and a difference between kinds and
// FORMAT.md fail the test.
func kindsOf(t *testing.T, objects map[string][]byte) map[string]string {
	t.Helper()
	rows := rowsOfFormat(t)
	of, seen := map[string]string{}, map[string]bool{}
	for key, body := range objects {
		for _, row := range rows {
			if formOf(row).MatchString(key) {
				of[key] = row
			}
		}
		if bytes.HasPrefix(body, []byte("VMSTABT1")) {
			of[key] = marked
		}
		if of[key] == "" {
			t.Errorf("%q is of no kind that section 1 of FORMAT.md tells", key)
		}
		seen[of[key]] = true
	}
	for _, row := range append(rows, marked) {
		if _, known := kinds[row]; !known {
			t.Errorf("kind %q: nothing says what must hold when it is harmed", row)
		}
		if !seen[row] {
			t.Errorf("kind %q: the repository has none", row)
		}
	}
	if len(kinds) != len(rows)+1 {
		t.Errorf("%d kinds, and FORMAT.md tells %d and the marker", len(kinds), len(rows))
	}
	return of
}

// full is a repository with an object of every kind, in the middle of everything.
type full struct {
	*collector
	root  []byte
	later []age.Identity
	// stay are backups that nobody asked to remove; pinned is to go, and a reader stands on it.
	stay   map[string]*repository.Result
	inputs map[string]input
	pin    string // the session of that reader
	// earlier are objects as they were: those that are gone, and those whose place another has taken.
	earlier map[string][]byte
	writing string // the session of a writer that is at work
}

func newFull(t *testing.T) *full {
	t.Helper()
	f := &full{collector: newCollector(t), stay: map[string]*repository.Result{}, inputs: map[string]input{}, earlier: map[string][]byte{}}
	f.root = f.keys.SigningKey()
	first, second := chainOfTwo(4 << 16)
	first.disks[1], second.disks[1] = first.disks[1][:20_001], second.disks[1][:20_001]
	gone := f.backup("gone", nil, first)
	f.inputs["pinned"], f.inputs["two"], f.inputs["new"] = second, first, second
	f.stay["pinned"] = f.backup("pinned", gone, second)
	mid := f.backup("mid", f.stay["pinned"], first)
	f.stay["two"] = f.backup("two", mid, first)
	f.backup("bad", f.stay["two"], second)
	f.claims()
	f.remember()
	f.pass(gone)
	f.remember()
	f.pass()
	f.rotate()
	f.distrusts(1, []repository.CommitRef{f.stay["two"].CommitRef})
	f.stay["new"] = f.backup("new", f.stay["two"], second)
	f.remember()
	b, err := f.writer.Begin(t.Context(), f.spec("writing", f.stay["new"]))
	must(t, err)
	t.Cleanup(b.Close)
	f.writing, err = f.writer.SessionKey("vm-uid", "uid-writing")
	must(t, err)
	must(t, f.reads("ended").Done(t.Context()))
	f.reads("reading")
	f.pin, err = f.writer.SessionKey("vm-uid", "reading")
	must(t, err)
	f.addRecipient()
	_, err = f.writer.Maintain(t.Context(), f.due(mid, f.stay["pinned"]))
	must(t, err)
	return f
}

// claims adds owners, and the proof of the root key.
func (f *full) claims() {
	f.t.Helper()
	for _, cluster := range []byte{1, 2} {
		_, err := f.writer.ClaimOwner(f.t.Context(), keys.ID{cluster}, nil)
		must(f.t, err)
	}
	challenge, err := f.keys.Challenge(f.recipients.Strings()[0])
	must(f.t, err)
	p, err := keys.Prove(challenge, f.identities[0], f.keys.Repository(), f.root)
	must(f.t, err)
	must(f.t, keys.StoreProof(f.t.Context(), f.store, f.keys, f.recipients, p))
}

func (f *full) remember() {
	for key, body := range contents(f.t, f.store) {
		f.earlier[key] = body
	}
}

func (f *full) reads(uid string) *repository.ReadPin {
	f.t.Helper()
	c, err := f.writer.Commit(f.t.Context(), f.stay["pinned"].CommitRef)
	must(f.t, err)
	p, err := f.writer.Pin(f.t.Context(), c, uid, 0)
	must(f.t, err)
	return p
}

func (f *full) addRecipient() {
	f.t.Helper()
	later, err := age.GenerateX25519Identity()
	must(f.t, err)
	f.later = []age.Identity{later}
	to, err := keys.ParseRecipients([]string{later.Recipient().String()})
	must(f.t, err)
	_, err = f.rooted(f.root).Rewrap(f.t.Context(), to)
	must(f.t, err)
}

// due is a pass an interval later, in which all are dead but who is at work.
func (f *full) due(remove ...*repository.Result) repository.MaintainSpec {
	f.now = f.now.Add(time.Hour)
	s := f.maintainSpec(remove...)
	for _, r := range f.stay {
		s.Known = append(s.Known, r.CommitRef)
	}
	s.Judge = func(_ context.Context, about repository.Session) (repository.Fate, error) {
		if about.Key == f.writing || about.Key == f.pin {
			return repository.Alive, nil
		}
		return repository.Dead, nil
	}
	return s
}

// needs are the objects that the backups which stay stand on.
func (f *full) needs(of map[string]string) map[string]bool {
	f.t.Helper()
	out := map[string]bool{}
	for _, r := range f.stay {
		list, err := f.writer.Needs(f.t.Context(), r.CommitRef)
		must(f.t, err)
		for _, key := range append(list, r.Key) {
			out[key] = true
		}
	}
	for key := range of {
		if key[0] == 'k' || key[0] == 'f' || key[0] == 'o' || key[0] == 'a' && !strings.HasPrefix(key, layout.CandidatesPrefix) {
			out[key] = true
		}
		if _, first, err := layout.OfRun(key); err == nil && out[first] {
			out[key] = true
		}
	}
	return out
}

// harm is a mutation of the object at a key.
type harm struct {
	mutation
	key string
}

// harms are what is done to the object at key: to itself, another of its kind in its place, an earlier one in its
// place, and a copy of it in the place of another.
func (f *full) harms(key string, objects map[string][]byte, of map[string]string) []harm {
	var out []harm
	others := 0
	for _, m := range mutations(key, objects) {
		if other, ok := strings.CutPrefix(m.name, "swapped for "); ok {
			if others++; of[other] != of[key] || others > 3 {
				continue
			}
		}
		out = append(out, harm{m, key})
	}
	if body, ok := f.earlier[key]; ok && !bytes.Equal(body, objects[key]) {
		out = append(out, harm{mutation{"replayed", body}, key})
	}
	return append(out, harm{mutation{"copied from " + key, objects[key]}, freeKey(key, objects)})
}

// freeKey is a key of the same form that no object has.
func freeKey(key string, objects map[string][]byte) string {
	digits := []byte(key)
	for at := len(digits) - 1; at >= 0; at-- {
		for _, d := range []byte("123456789") {
			if digits[at] < '0' || digits[at] > '9' {
				break
			}
			digits[at] = d
			if _, taken := objects[string(digits)]; !taken {
				return string(digits)
			}
		}
		digits[at] = key[at]
	}
	return key + ".copy"
}

// TestEveryKind does to an object of every kind everything in harms: restores are refused by name or right, and
// garbage collection deletes nothing that is needed.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	f := newFull(t)
	objects := contents(t, f.store)
	of := kindsOf(t, objects)
	need := f.needs(of)
	refused := map[string]int{}
	var list []harm
	for key := range objects {
		list = append(list, f.harms(key, objects, of)...)
	}
	for key, body := range f.earlier {
		if _, there := objects[key]; !there {
			list = append(list, harm{mutation{"replayed after its removal", body}, key})
		}
	}
	for _, h := range list {
		if bytes.Equal(h.body, objects[h.key]) && h.body != nil {
			continue
		}
		f.mutate(h.key, h.mutation, objects)
		refused[of[h.key]] += f.restoresOrNames(h, of[h.key])
		f.collects(h, need, of[h.key])
	}
	for row, what := range kinds {
		if n := refused[row]; (n > 0) == (what == control) {
			t.Errorf("kind %q: %d restores of harmed stores were refused", row, n)
		}
	}
	t.Logf("%d objects, %d harms; refused restores: %v", len(objects), len(list), refused)
}

// restoresOrNames restores every backup with the identities of both recipients, and counts refusals.
func (f *full) restoresOrNames(h harm, row string) (refused int) {
	f.t.Helper()
	what := kinds[row]
	if row == "" {
		what = control // it takes nobody's place
	}
	readers := map[string][]age.Identity{"the recipient": f.identities}
	if what == spare || strings.HasSuffix(row, ".age") {
		readers["the later recipient"] = f.later // to whom other files than key files are the same
	}
	for who, ids := range readers {
		for name, ref := range f.stay {
			got, err := f.restoreBy(ids, ref.CommitRef)
			if err == nil && got.equal(f.inputs[name]) {
				continue
			}
			refused++
			about := h.name + " of " + h.key + ", restore of " + name + " by " + who
			mayName := h.key
			if what == control || what == spare && who == "the recipient" {
				f.t.Errorf("%s: the backup does not need it, and: %v", about, err)
				continue
			}
			if what == spare && h.body == nil {
				mayName = h.key[:strings.LastIndexByte(h.key, '-')] + ".age"
			}
			checkDetected(f.t, about, mayName, err)
		}
	}
	return refused
}

func (f *full) restoreBy(ids []age.Identity, ref repository.CommitRef) (input, error) {
	r, err := repository.OpenWithIdentities(f.t.Context(), f.store, ids, f.root)
	if err != nil {
		return input{}, err
	}
	return restoreAll(f.t.Context(), r, ref)
}

// collects runs garbage collection on a harmed store, in which all that is of no use is due.
func (f *full) collects(h harm, need map[string]bool, row string) {
	f.t.Helper()
	before := contents(f.t, f.store)
	writer, err := repository.OpenWithKeys(f.t.Context(), f.store, f.keys)
	if err != nil {
		return // and nothing was collected
	}
	for range 2 { // the list of candidates is from an interval ago
		s := f.due()
		s.Store = f.store.(objectstore.Deleter)
		if _, err := writer.Maintain(f.t.Context(), s); err != nil {
			break // the next pass would meet the same
		}
	}
	after := contents(f.t, f.store)
	lost := map[string]bool{}
	for key := range need {
		if body, there := before[key]; there && !bytes.Equal(after[key], body) {
			lost[key] = true
		}
	}
	if h.key == f.pin && h.body == nil {
		return // a pin that is not there holds nothing
	}
	if len(lost) > 0 {
		f.t.Errorf("%s of %q: garbage collection took %q", h.name, h.key, slices.Sorted(maps.Keys(lost)))
	}
	if kinds[row] == control {
		f.restoresOrNames(h, row)
	}
}
