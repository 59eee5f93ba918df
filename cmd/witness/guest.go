package main

import (
	"context"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	subresources = "subresources.kubevirt.io"
	instances    = "virtualmachineinstances"
	unfreeze     = "unfreeze"
	unpause      = "unpause"
)

// thaw asks to unfreeze the guest. It is nil if that worked or the instance is gone:
// a 404 counts only if it names the instance, since KubeVirt's API itself can be
// missing for a while.
func (a *api) thaw(ctx context.Context, instance string) error {
	ctx, cancel := context.WithTimeout(ctx, thawTimeout)
	defer cancel()
	err := send(ctx, a.subresource(instance, unfreeze), nil, nil)
	if gone(err, instance) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("unfreeze instance %q: %w", instance, err)
	}
	return nil
}

func (a *api) subresource(instance, name string) *rest.Request {
	return a.rest.Put().AbsPath("/apis", subresources, "v1", "namespaces", a.namespace, instances, instance, name)
}

func gone(err error, instance string) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && apierrors.IsNotFound(err) && status.Status().Details != nil && status.Status().Details.Name == instance
}

// paused says that an instance is the one with that UID, and that its status says that it is paused.
func (a *api) paused(ctx context.Context, instance string, uid types.UID) (bool, error) {
	var seen struct {
		Metadata metav1.ObjectMeta
		Status   struct{ Conditions []metav1.Condition }
	}
	err := call(ctx, a.rest.Get().AbsPath("/apis/kubevirt.io/v1/namespaces", a.namespace, instances, instance), nil, &seen)
	if gone(err, instance) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get instance %q: %w", instance, err)
	}
	return seen.Metadata.UID == uid && meta.IsStatusConditionTrue(seen.Status.Conditions, "Paused"), nil
}

// unpause lets a paused instance go on, if it is the one with that UID. It is nil if that worked, if the
// instance's status says that it is not paused, or if it is gone. A conflict is an error.
func (a *api) unpause(ctx context.Context, instance string, uid types.UID) error {
	ctx, cancel := context.WithTimeout(ctx, thawTimeout)
	defer cancel()
	is, err := a.paused(ctx, instance, uid)
	if err != nil || !is {
		return err
	}
	if err = send(ctx, a.subresource(instance, unpause), nil, nil); err != nil && !gone(err, instance) {
		return fmt.Errorf("unpause instance %q: %w", instance, err)
	}
	return nil
}

// reachesKubeVirt looks at an instance and asks for an unpause that is only tried. KubeVirt refuses it as a
// conflict where the instance runs: an answer of its own, at the end of the way that an unpause must take.
func (a *api) reachesKubeVirt(ctx context.Context, instance string) error {
	if _, err := a.paused(ctx, instance, ""); err != nil {
		return err
	}
	err := call(ctx, a.subresource(instance, unpause), map[string][]string{"dryRun": {metav1.DryRunAll}}, nil)
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("try to unpause instance %q: %w", instance, err)
	}
	return nil
}

// may asks the API server whether this account may unfreeze or unpause the guest.
func (a *api) may(ctx context.Context, subresource, instance string) (bool, error) {
	review := authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectAccessReview"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: a.namespace, Verb: "update", Group: subresources, Version: "v1",
			Resource: instances, Subresource: subresource, Name: instance,
		}},
	}
	request := a.rest.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
	if err := call(ctx, request, review, &review); err != nil {
		return false, fmt.Errorf("ask whether this account may %s instance %q: %w", subresource, instance, err)
	}
	return review.Status.Allowed, nil
}
