package backup

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// Only what was made by vmstate for an owner that is gone, and has no other, is left over.
func TestLeftover(t *testing.T) {
	yes := true
	for name, tc := range map[string]struct {
		change func(*metav1.ObjectMeta)
		want   bool
	}{
		"Orphan":      {func(*metav1.ObjectMeta) {}, true},
		"OwnerThere":  {func(o *metav1.ObjectMeta) { o.Name, o.Labels[v1alpha1.LabelOwnerUID] = "vmstate-there-snap", "there" }, false},
		"Controlled":  {func(o *metav1.ObjectMeta) { o.OwnerReferences = []metav1.OwnerReference{{UID: "x", Controller: &yes}} }, false},
		"OtherName":   {func(o *metav1.ObjectMeta) { o.Name = "copy" }, false},
		"OtherMaker":  {func(o *metav1.ObjectMeta) { delete(o.Labels, v1alpha1.LabelManagedBy) }, false},
		"NoOwner":     {func(o *metav1.ObjectMeta) { delete(o.Labels, v1alpha1.LabelOwnerUID) }, false},
		"BeingGone":   {func(o *metav1.ObjectMeta) { o.DeletionTimestamp = &metav1.Time{Time: noon} }, false},
		"JustCreated": {func(o *metav1.ObjectMeta) { o.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := metav1.ObjectMeta{
				Name: "vmstate-gone-snap", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
				Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy, v1alpha1.LabelOwnerUID: "gone"},
			}
			tc.change(&o)
			if got := Leftover(&o, map[types.UID]bool{"there": true}, noon); got != tc.want {
				t.Errorf("left over %t, want %t", got, tc.want)
			}
		})
	}
}
