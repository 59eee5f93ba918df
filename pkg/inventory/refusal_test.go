package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/build"
)

// TestAllAtOnce: what is repaired one by one is found out one by one.
func TestAllAtOnce(t *testing.T) {
	yes, other := true, "velero"
	broken := seen(sealed(build.Disk("data"), build.Disk("logs")), build.Claim("root-db"), build.Claim("logs-db"),
		build.StateClaim("db", "abcde"), build.StateClaim("db", "other"))
	broken.VM.Status.SnapshotInProgress = &other
	broken.VM.Spec.Template.Spec.Domain.Devices.Disks[0].Shareable = &yes
	broken.Claims["logs-db"].Status.Phase = corev1.ClaimPending
	migrating := runs(seen(sealed(), build.Claim("root-db"), build.StateClaim("db", "abcde"), build.StateClaim("db", "other")), func(s *Seen) {
		s.Migrations = []kubevirtv1.VirtualMachineInstanceMigration{{ObjectMeta: metav1.ObjectMeta{Name: "m"}}}
	})
	starting := runs(seen(sealed()), func(s *Seen) { s.VMI.Status.Phase, s.VMI.Status.NodeName, s.Launchers = kubevirtv1.Pending, "", nil })
	for name, tc := range map[string]struct {
		why    string
		in     Seen
		want   [][3]string // reason, volume, object
		moving bool
	}{
		"Broken": {
			why: "a machine at rest with four faults, which another tool snapshots", in: broken, moving: true,
			want: [][3]string{
				{v1alpha1.ReasonVMUnsettled, "", "virtualmachine/db"},
				{v1alpha1.ReasonVolumeShared, "root", "virtualmachine/db"},
				{v1alpha1.ReasonVolumeNotReady, "data", "persistentvolumeclaim/data-db"},
				{v1alpha1.ReasonVolumeNotReady, "logs", "persistentvolumeclaim/logs-db"},
				{v1alpha1.ReasonStateAmbiguous, "", "persistentvolumeclaim/persistent-state-for-db-other"},
			},
		},
		"Migrating": {
			why: "between the two steps of a hand-over two claims carry the label: that is no fault", in: migrating, moving: true,
			want: [][3]string{{v1alpha1.ReasonMigrating, "", "virtualmachineinstancemigration/m"}},
		},
		"FirstStart": {
			why: "claims are made while a machine starts: their absence ends nothing", in: starting, moving: true,
			want: [][3]string{
				{v1alpha1.ReasonVMUnsettled, "", "virtualmachineinstance/db"},
				{v1alpha1.ReasonVolumeNotReady, "root", "persistentvolumeclaim/root-db"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, found := Of(tc.in)
			var got [][3]string
			moving := false
			for _, r := range found {
				got = append(got, [3]string{r.Reason, r.Volume, r.Object})
				moving = moving || r.Moving()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || moving != tc.moving {
				t.Errorf("%s: moving %t (-want +got):\n%s", tc.why, moving, diff)
			}
		})
	}
}
