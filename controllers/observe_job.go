package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// seenJob is a Job and the report of its name. Both may be absent.
type seenJob struct {
	Job    *batchv1.Job
	Report *v1alpha1.VMStateReport
	// Failed says that the Job gave up; Message says why.
	Failed  bool
	Message string
	// Pending says what keeps the Job's pod from running; empty if nothing does.
	Pending string
	// NoRoom says that this is a lack of room, which ends: nodes are full or a quota is used up.
	NoRoom bool
	// Standing says how its newest pod stands; empty if that was not looked at.
	Standing string
}

// settling is how old a Job is before its pods are asked what keeps them.
const settling = 15 * time.Second

// +kubebuilder:rbac:groups="",resources=pods;events,verbs=list

// observeJob reads a Job and its report, and asks its pods and events what is wrong where
// neither of them says so.
func observeJob(ctx context.Context, live client.Reader, namespace, name string) (seenJob, error) {
	var out seenJob
	key := types.NamespacedName{Namespace: namespace, Name: name}
	report := &v1alpha1.VMStateReport{}
	err := live.Get(ctx, key, report)
	if client.IgnoreNotFound(err) != nil {
		return out, fmt.Errorf("get report %q: %w", name, err)
	}
	if err == nil {
		out.Report = report
	}
	job := &batchv1.Job{}
	if err := live.Get(ctx, key, job); err != nil {
		if apierrors.IsNotFound(err) {
			return out, nil
		}
		return out, fmt.Errorf("get Job %q: %w", name, err)
	}
	out.Job = job
	for _, c := range job.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			out.Failed, out.Message = true, c.Message
		}
	}
	if out.Report != nil && speaks(out.Report, out.Failed) {
		return out, nil
	}
	if !out.Failed && time.Since(job.CreationTimestamp.Time) < settling {
		return out, nil // what is said of a pod in its first seconds is mostly not true any more
	}
	return out, diagnose(ctx, live, &out)
}

// speaks says that a report tells all there is to know. A witness at work is not asked how its pod
// stands: between its readings every request counts.
func speaks(r *v1alpha1.VMStateReport, failed bool) bool {
	atWork := r.Status.PodUID != "" && !failed
	return r.Status.Outcome != "" || atWork && r.Spec.Task == v1alpha1.TaskWitness
}

// diagnose looks for the reason why a Job does not run, or failed without a word.
func diagnose(ctx context.Context, live client.Reader, seen *seenJob) error {
	pods := &corev1.PodList{}
	of := client.MatchingLabels{batchv1.JobNameLabel: seen.Job.Name}
	if err := live.List(ctx, pods, client.InNamespace(seen.Job.Namespace), of); err != nil {
		return fmt.Errorf("list pods of Job %q: %w", seen.Job.Name, err)
	}
	involved := []types.UID{seen.Job.UID}
	slices.SortFunc(pods.Items, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := range pods.Items {
		pod := &pods.Items[i]
		seen.Standing = standing(pod)
		involved = append(involved, pod.UID)
		if seen.Failed {
			seen.Message = joined(seen.Message, lastWords(pod))
		} else if pod.Status.Phase == corev1.PodPending {
			seen.Pending = pendingBecause(pod)
		}
	}
	if seen.NoRoom = noRoom(seen.Pending); seen.Failed || seen.Pending != "" || anyRan(pods.Items) {
		return nil
	}
	events := &corev1.EventList{}
	if err := live.List(ctx, events, client.InNamespace(seen.Job.Namespace)); err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	for _, uid := range involved {
		for _, e := range events.Items {
			if e.InvolvedObject.UID == uid && e.Type == corev1.EventTypeWarning {
				seen.Pending = e.Reason + ": " + e.Message
			}
		}
	}
	seen.NoRoom = noRoom(seen.Pending)
	return nil
}

// roomWords are what is said of a pod that fits nowhere at the moment: by the scheduler's plugins (kube-scheduler, pkg/scheduler/
// framework/plugins: noderesources, interpodaffinity, nodeunschedulable, tainttoleration, nodevolumelimits), and by admission of
// quotas (apiserver, pkg/admission/plugin/resourcequota). No code tells it. What is not known here is limited in time.
var roomWords = []string{
	"Insufficient ", "Too many pods", "anti-affinity rules", "node(s) were unschedulable", "untolerated taint",
	"exceed max volume count", "exceeded quota",
}

func noRoom(pending string) bool {
	return slices.ContainsFunc(roomWords, func(w string) bool { return strings.Contains(pending, w) })
}

// standing is where a pod is and what was said of it last, for a person who wonders why nothing moves.
func standing(pod *corev1.Pod) string {
	text := fmt.Sprintf("pod %q is %s", pod.Name, pod.Status.Phase)
	if pod.Spec.NodeName != "" {
		text += fmt.Sprintf(" on node %q", pod.Spec.NodeName)
	}
	if pod.DeletionTimestamp != nil {
		text += ", was told to end and has not (its node may be gone)"
	}
	for _, s := range pod.Status.ContainerStatuses {
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			text += ", " + joined(s.State.Waiting.Reason, s.State.Waiting.Message)
		case s.State.Terminated != nil:
			text += ", " + joined(s.State.Terminated.Reason, strings.TrimSpace(s.State.Terminated.Message))
		}
	}
	if said := joined(pod.Status.Reason, pod.Status.Message); said != "" {
		text += ", " + said
	}
	return text
}

func anyRan(pods []corev1.Pod) bool {
	for _, p := range pods {
		if p.Status.Phase != corev1.PodPending {
			return true
		}
	}
	return false
}

// pendingBecause is what the scheduler or the kubelet says of a pod; empty if nothing yet.
func pendingBecause(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return c.Message
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "" {
			return joined(w.Reason, w.Message)
		}
	}
	return ""
}

// lastWords are what a container that ended left behind: its message or its last log lines.
func lastWords(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return joined(t.Reason, strings.TrimSpace(t.Message))
		}
	}
	return pod.Status.Message
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}
