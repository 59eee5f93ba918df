package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/job"
)

// executor carries out actions: one case an action type.
type executor struct {
	client client.Client
	// live reads past the cache.
	live   client.Reader
	guests Guests
	// image of vmstate, for its Jobs.
	image string
	now   func() time.Time
}

// run carries out actions in order and stops at the first error. The answers of the actions
// that came to one are returned in any case.
func (e *executor) run(ctx context.Context, owner client.Object, actions []action.Action) ([]action.Answer, error) {
	var answers []action.Answer
	paused := false
	for _, a := range actions {
		if _, thaws := a.(action.Unfreeze); thaws && paused {
			continue // its agent cannot answer
		}
		answer, err := e.do(ctx, owner, a)
		if answer != nil {
			answers = append(answers, *answer)
			_, unpauses := a.(action.Unpause)
			paused = unpauses && answer.Failure != ""
		}
		if err != nil {
			return answers, err
		}
	}
	return answers, nil
}

func (e *executor) do(ctx context.Context, owner client.Object, a action.Action) (*action.Answer, error) {
	if answer := e.doGuest(ctx, owner, a); answer != nil {
		return answer, nil
	}
	switch a := a.(type) {
	case action.AddFinalizer:
		return nil, e.patchFinalizer(ctx, owner, func() bool { return controllerutil.AddFinalizer(owner, a.Finalizer) })
	case action.RemoveFinalizer:
		return nil, e.patchFinalizer(ctx, owner, func() bool { return controllerutil.RemoveFinalizer(owner, a.Finalizer) })
	case action.RunJob:
		return nil, e.runJob(ctx, owner, a.Job)
	case action.CreateClaim:
		return nil, e.createClaim(ctx, owner, a.Claim)
	case action.CreateConfigMap:
		return nil, e.createConfigMap(ctx, owner, a)
	case action.Delete:
		return nil, e.delete(ctx, owner, a)
	}
	for _, do := range []func(context.Context, client.Object, action.Action) (bool, error){e.doBackup, e.doStore} {
		if done, err := do(ctx, owner, a); done {
			return nil, err
		}
	}
	return nil, e.doRestore(ctx, owner, a)
}

// ownerOf is the owner as a Job's builder wants it.
func (e *executor) ownerOf(owner client.Object) (job.Owner, error) {
	kind, err := apiutil.GVKForObject(owner, e.client.Scheme())
	if err != nil {
		return job.Owner{}, fmt.Errorf("kind of %q: %w", owner.GetName(), err)
	}
	return job.OwnerOf(owner, kind.Kind), nil
}

// create makes obj, or accepts the one already there if owner controls it. Names
// are fixed by the plan, so after a crash the same create meets its own object.
func (e *executor) create(ctx context.Context, owner, obj client.Object) error {
	err := e.client.Create(ctx, obj)
	if apierrors.IsForbidden(err) && noRoom(err.Error()) {
		return fmt.Errorf("%w: %w", action.ErrNoRoom, err)
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	found := &metav1.PartialObjectMetadata{}
	kind, err := apiutil.GVKForObject(obj, e.client.Scheme())
	if err != nil {
		return err
	}
	found.SetGroupVersionKind(kind)
	if err := e.live.Get(ctx, client.ObjectKeyFromObject(obj), found); err != nil {
		return err
	}
	if !metav1.IsControlledBy(found, owner) {
		return fmt.Errorf("%s %q exists and is not controlled by %q", kind.Kind, found.GetName(), owner.GetName())
	}
	return nil
}

// patchFinalizer changes the finalizers of an owner that is still as it was read.
func (e *executor) patchFinalizer(ctx context.Context, owner client.Object, change func() bool) error {
	before, _ := owner.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := e.client.Patch(ctx, owner, patch); err != nil {
		return fmt.Errorf("patch finalizers of %q: %w", owner.GetName(), err)
	}
	return nil
}

// runJob makes what a Job needs before the Job, so that a pod never runs without its rights or
// its report.
func (e *executor) runJob(ctx context.Context, owner client.Object, s job.Spec) error {
	o, err := e.ownerOf(owner)
	if err != nil {
		return err
	}
	objects := job.Build(o, e.image, s)
	log := ctrl.LoggerFrom(ctx).WithValues("Job", klog.KObj(objects.Job))
	log.Info("Creating Job", "task", s.Task)
	for _, obj := range []client.Object{objects.Account, objects.Binding, objects.Report, objects.Job} {
		if err := e.create(ctx, owner, obj); err != nil {
			return fmt.Errorf("create %T %q: %w", obj, obj.GetName(), err)
		}
	}
	return nil
}

func (e *executor) createClaim(ctx context.Context, owner client.Object, claim *corev1.PersistentVolumeClaim) error {
	o, err := e.ownerOf(owner)
	if err != nil {
		return err
	}
	own := claim.DeepCopy()
	meta := o.Meta(claim.Name, "")
	own.Namespace, own.OwnerReferences = meta.Namespace, meta.OwnerReferences
	own.Labels = merged(claim.Labels, meta.Labels)
	ctrl.LoggerFrom(ctx).Info("Creating claim", "PersistentVolumeClaim", klog.KObj(own))
	if err := e.create(ctx, owner, own); err != nil {
		return fmt.Errorf("create claim %q: %w", claim.Name, err)
	}
	return nil
}

func (e *executor) createConfigMap(ctx context.Context, owner client.Object, a action.CreateConfigMap) error {
	o, err := e.ownerOf(owner)
	if err != nil {
		return err
	}
	immutable := true
	data := make(map[string]string, len(a.Data))
	for key, value := range a.Data {
		data[key] = string(value)
	}
	obj := &corev1.ConfigMap{ObjectMeta: o.Meta(a.Name, ""), Immutable: &immutable, Data: data}
	ctrl.LoggerFrom(ctx).Info("Creating ConfigMap", "ConfigMap", klog.KObj(obj))
	if err := e.create(ctx, owner, obj); err != nil {
		return fmt.Errorf("create ConfigMap %q: %w", a.Name, err)
	}
	return nil
}

// delete removes the object with the UID that the plan saw, and no other one of its name.
func (e *executor) delete(ctx context.Context, owner client.Object, a action.Delete) error {
	obj := &metav1.PartialObjectMetadata{}
	kind, err := e.kindOf(a.Kind)
	if err != nil {
		return err
	}
	obj.SetGroupVersionKind(kind)
	obj.SetNamespace(owner.GetNamespace())
	obj.SetName(a.Name)
	ctrl.LoggerFrom(ctx).Info("Deleting object", "kind", a.Kind, "object", klog.KObj(obj))
	err = e.client.Delete(ctx, obj, client.Preconditions{UID: &a.UID}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another one by now
	}
	if err != nil {
		return fmt.Errorf("delete %s %q: %w", a.Kind, a.Name, err)
	}
	return nil
}

// merged is a new map with the entries of both; those of over win.
func merged(base, over map[string]string) map[string]string {
	out := make(map[string]string, len(base)+len(over))
	for key, value := range base {
		out[key] = value
	}
	for key, value := range over {
		out[key] = value
	}
	return out
}
