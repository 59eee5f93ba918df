package job

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// failurePolicy does not try again what cannot succeed, and does not count what is no failure of
// the program: an eviction, a drain, a preemption. The first rule that fits wins.
func failurePolicy(task v1alpha1.ReportTask) *batchv1.PodFailurePolicy {
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		},
		{
			Action: batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: ptr(Role(task)), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{ExitFinal},
			},
		},
	}}
}
