package backup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// FC-007: a machine that kept firmware state and keeps none any more is noticed, and the last backup that has it is named.
func TestVanished(t *testing.T) {
	stored := func(state v1alpha1.StateBinding) func(*Observed) {
		return func(in *Observed) {
			momentOf(in)
			completed := metav1.NewTime(noon)
			in.Backup.Finalizers, in.Backup.Status.CompletedAt, in.Backup.Status.Moment.State = nil, &completed, state
			in.Backup.Status.Export = &v1alpha1.ExportStatus{Commit: &v1alpha1.CommitRef{Key: "c", Digest: one, Sequence: 9}}
		}
	}
	other := func(name string, sequence int64, state v1alpha1.StateBinding, change ...func(*v1alpha1.VMStateBackup)) func(*Observed) {
		return earlier(sequence, append(change, func(b *v1alpha1.VMStateBackup) {
			b.Name, b.Status.Moment.State, b.Status.Export.Base = name, state, nil
		})...)
	}
	for name, tc := range map[string]struct {
		why  string
		in   Observed
		last string
	}{
		"Vanished":     {why: "the last that has it is named", in: at(stored(v1alpha1.StateNone), other("a", 7, v1alpha1.StateWitness), other("b", 8, v1alpha1.StateOffline)), last: "b"},
		"GoneForLong":  {why: "every backup without says so", in: at(stored(v1alpha1.StateNone), other("a", 6, v1alpha1.StateWitness), other("b", 8, v1alpha1.StateNone)), last: "a"},
		"Kept":         {why: "it holds its own", in: at(stored(v1alpha1.StateWitness), other("a", 7, v1alpha1.StateWitness))},
		"NeverHad":     {why: "nothing was lost", in: at(stored(v1alpha1.StateNone), other("a", 7, v1alpha1.StateNone))},
		"Later":        {why: "what came later is no loss", in: at(stored(v1alpha1.StateNone), other("a", 10, v1alpha1.StateWitness))},
		"OtherMachine": {why: "a machine of the same name is another", in: at(stored(v1alpha1.StateNone), other("a", 7, v1alpha1.StateWitness, func(b *v1alpha1.VMStateBackup) { b.Status.VM.UID = "vm-old" }))},
	} {
		t.Run(name, func(t *testing.T) {
			var want []Finding
			if tc.last != "" {
				want = []Finding{{v1alpha1.ConditionFirmwareStateKept, metav1.ConditionFalse, v1alpha1.ReasonStateVanished,
					`VM "db" keeps no TPM and no EFI variables any more, which backup "` + tc.last + `" still holds: keep that one, as nothing after it opens what the guest has sealed; ` +
						`make them persistent again (in the VM's spec or its preference), and restore it if they are gone`}}
			}
			if diff := cmp.Diff(want, Plan(tc.in).Findings); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.why, diff)
			}
		})
	}
}
