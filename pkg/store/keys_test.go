package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/job"
)

// TestSetupTold: what people say of a store's keys reaches its setup Job, which sees the keys of two epochs.
func TestSetupTold(t *testing.T) {
	in := at(func(in *Observed) {
		in.Store.Spec.KeyEpoch = 3
		in.Store.Spec.Proofs = []v1alpha1.RootKeyProof{{Recipient: "00ff", Proof: []byte("p"), Answer: []byte("a")}}
		in.Store.Spec.Distrust = []v1alpha1.EpochDistrust{{Epoch: 1, LastGood: []v1alpha1.GoodCommit{{Key: "c/x", Digest: "dd"}}}}
	})
	run, ok := Plan(in).Actions[0].(action.RunJob)
	if !ok {
		t.Fatal("no Job")
	}
	for _, want := range []string{
		`"keysSecretName":"main-repository-keys-3","epoch":3`, `"proofs":[{"recipient":"00ff","proof":"cA==","answer":"YQ=="}]`,
		`"distrust":[{"epoch":1,"lastGood":[{"key":"c/x","digest":"dd"}]}]`,
	} {
		if !strings.Contains(string(run.Job.Config), want) {
			t.Errorf("the Job is not told %s: %s", want, run.Job.Config)
		}
	}
	want := []job.Mount{
		{Secret: "s3-write", Path: job.PathCredentials, Optional: true},
		{Secret: "main-repository-keys-3", Path: job.PathRepositoryKeys, Optional: true},
		{Secret: "main-repository-keys-2", Path: job.PathPreviousKeys, Optional: true},
	}
	if diff := cmp.Diff(want, run.Job.Mounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
}

// TestKeysRecorded: backups use the keys of an epoch once setup has made them, and a store says what was proven.
func TestKeysRecorded(t *testing.T) {
	result := v1alpha1.SetupResult{
		Findings: []v1alpha1.Finding{}, ChecksumMode: "CRC32C", RepositoryID: "r1", SigningKey: "k1", Writable: true,
		Proven: []string{"00ff"}, Challenges: []v1alpha1.RecipientChallenge{{Recipient: "0011", Challenge: []byte("c")}},
	}
	next := func(in *Observed) { in.Store.Spec.KeyEpoch = 2 }
	s := Plan(at(next, reports(v1alpha1.OutcomeSucceeded, "", "", &result))).Status
	if s.KeysSecretName != "main-repository-keys-2" || s.KeyEpoch != 2 {
		t.Errorf("keys are in %q, epoch %d", s.KeysSecretName, s.KeyEpoch)
	}
	proven := func(s v1alpha1.VMStateStoreStatus) string {
		c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionProven)
		return string(c.Status) + " " + c.Message
	}
	if got := proven(s); got != "True 1 of 2 recipients were shown to open the backups; for the others, type kubectl vmstate prove main -n prod --identity FILE" {
		t.Errorf("one of two: %s", got)
	}
	if len(s.Challenges) != 1 || len(s.Proven) != 1 {
		t.Errorf("challenges %v, proven %v", s.Challenges, s.Proven)
	}
	result.Proven, result.Challenges = []string{"00ff", "0011"}, nil
	if got := proven(Plan(at(next, reports(v1alpha1.OutcomeSucceeded, "", "", &result))).Status); got != "True every recipient was shown to open the backups" {
		t.Errorf("both: %s", got)
	}
	result.Writable, result.Superseded = false, true
	s = Plan(at(reports(v1alpha1.OutcomeSucceeded, "", "", &result))).Status
	c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWritable)
	if c.Reason != v1alpha1.ReasonKeysSuperseded || !strings.Contains(c.Message, "set spec.keyEpoch to 2") || s.KeysSecretName != "" {
		t.Errorf("superseded: %s %s, keys in %q", c.Reason, c.Message, s.KeysSecretName)
	}
}

// TestTrustGoesForward: what was seen of the signing keys is kept, what is new is added, and a bucket that shows less, or
// something else, makes the store unusable with what to do, whoever reports it.
func TestTrustGoesForward(t *testing.T) {
	mark := func(epoch int64, key string, words ...v1alpha1.DistrustMark) *v1alpha1.TrustMark {
		return &v1alpha1.TrustMark{KeyEpoch: epoch, SigningKey: key, Distrust: words}
	}
	word := func(number int64, digest string) v1alpha1.DistrustMark {
		return v1alpha1.DistrustMark{Epoch: 1, Number: number, Digest: digest}
	}
	for name, tc := range map[string]struct {
		was, seen, want *v1alpha1.TrustMark
		wrong           string
	}{
		"First":           {nil, mark(1, "a"), mark(1, "a"), ""},
		"NextEpoch":       {mark(1, "a"), mark(2, "b"), mark(2, "b"), ""},
		"NewWord":         {mark(2, "b"), mark(2, "b", word(1, "x")), mark(2, "b", word(1, "x")), ""},
		"LaterWord":       {mark(2, "b", word(1, "x")), mark(2, "b", word(4, "y")), mark(2, "b", word(4, "y")), ""},
		"NotLooked":       {mark(2, "b"), nil, mark(2, "b"), ""},
		"EarlierEpoch":    {mark(2, "b"), mark(1, "a"), mark(2, "b"), "it shows keys of epoch 1, and those of epoch 2 were seen"},
		"OtherKey":        {mark(2, "b"), mark(2, "c"), mark(2, "b"), "the signing key of epoch 2 is not the one that it was"},
		"WordHidden":      {mark(2, "b", word(2, "y")), mark(2, "b"), mark(2, "b", word(2, "y")), "said in word 2, which it does not show"},
		"EarlierWord":     {mark(2, "b", word(2, "y")), mark(3, "c", word(1, "x")), mark(2, "b", word(2, "y")), "said in word 2, which it does not show"},
		"OtherWordInIts":  {mark(2, "b", word(2, "y")), mark(2, "b", word(2, "z")), mark(2, "b", word(2, "y")), "said in word 2, which it does not show"},
		"ReportedByMover": {mark(2, "b"), nil, mark(2, "b"), `"k/2.age" has another signing key than it had`},
	} {
		t.Run(name, func(t *testing.T) {
			result := v1alpha1.SetupResult{Findings: []v1alpha1.Finding{}, RepositoryID: "r1", SigningKey: "k1", Writable: true, Trust: tc.seen}
			told := reports(v1alpha1.OutcomeSucceeded, "", "", &result)
			if name == "ReportedByMover" {
				told = reports(v1alpha1.OutcomeFailed, v1alpha1.ReasonKeysSetBack, tc.wrong, &result)
			}
			s := Plan(at(func(in *Observed) { in.Store.Status.Trust = tc.was }, told)).Status
			if diff := cmp.Diff(tc.want, s.Trust); diff != "" {
				t.Errorf("trust (-want +got):\n%s", diff)
			}
			ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
			if tc.wrong == "" {
				if ready.Status != "True" {
					t.Errorf("not ready: %s", ready.Message)
				}
				return
			}
			writable := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionWritable)
			if ready.Status != "False" || ready.Reason != v1alpha1.ReasonKeysSetBack || writable.Status != "False" ||
				!strings.Contains(ready.Message, tc.wrong) || !strings.Contains(ready.Message, "Bring the object back") {
				t.Errorf("ready %s %s: %s", ready.Status, ready.Reason, ready.Message)
			}
		})
	}
}
