package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
)

// Guests asks KubeVirt for what it offers as a subresource only. All methods may be called
// concurrently; each returns the API server's own error, so that apierrors can tell it.
type Guests interface {
	// Freeze asks the guest agent to freeze the filesystems of an instance. KubeVirt thaws them
	// by itself after timeout. Freezing a frozen guest succeeds and does not move its timeout.
	Freeze(ctx context.Context, namespace, instance string, timeout time.Duration) error
	// Unfreeze asks the guest agent to thaw. Thawing a thawed guest succeeds.
	Unfreeze(ctx context.Context, namespace, instance string) error
	// Pause stops the instance's virtual processors and has its disks flushed. An instance that is
	// paused already, or that KubeVirt will not pause, is a conflict or forbidden.
	Pause(ctx context.Context, namespace, instance string) error
	// Unpause lets it go on. It is a conflict until the instance's status says that it is paused, and
	// while a VirtualMachineSnapshot is in progress.
	Unpause(ctx context.Context, namespace, instance string) error
	// Expand is a VirtualMachine with its instancetype and preference applied.
	Expand(ctx context.Context, namespace, vm string) (*kubevirtv1.VirtualMachine, error)
	// Gone reports that the cluster defines no VirtualMachineInstances: the API server was asked what it serves,
	// and they are not among it. Any other answer, and none, is false.
	Gone(ctx context.Context) bool
}

// subresources is Guests on a cluster.
type subresources struct{ rest rest.Interface }

// NewGuests talks to the group subresources.kubevirt.io of a cluster.
func NewGuests(config *rest.Config, client *http.Client) (Guests, error) {
	own := rest.CopyConfig(config)
	own.APIPath = "/apis"
	own.GroupVersion = &schema.GroupVersion{Group: "subresources.kubevirt.io", Version: "v1"}
	own.NegotiatedSerializer = clientgoscheme.Codecs.WithoutConversion()
	c, err := rest.RESTClientForConfigAndClient(own, client)
	if err != nil {
		return nil, fmt.Errorf("client for subresources.kubevirt.io: %w", err)
	}
	return subresources{rest: c}, nil
}

func (s subresources) Freeze(ctx context.Context, namespace, instance string, timeout time.Duration) error {
	body, err := json.Marshal(kubevirtv1.FreezeUnfreezeTimeout{UnfreezeTimeout: &metav1.Duration{Duration: timeout}})
	if err != nil {
		return err
	}
	return s.put(ctx, namespace, instance, "freeze", body)
}

func (s subresources) Unfreeze(ctx context.Context, namespace, instance string) error {
	return s.put(ctx, namespace, instance, "unfreeze", nil)
}

func (s subresources) Pause(ctx context.Context, namespace, instance string) error {
	return s.put(ctx, namespace, instance, "pause", nil)
}

func (s subresources) Unpause(ctx context.Context, namespace, instance string) error {
	return s.put(ctx, namespace, instance, "unpause", nil)
}

func (s subresources) put(ctx context.Context, namespace, instance, subresource string, body []byte) error {
	return s.rest.Put().Namespace(namespace).Resource("virtualmachineinstances").Name(instance).
		SubResource(subresource).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Error()
}

func (s subresources) Gone(ctx context.Context) bool {
	gone, err := undefined(ctx, s.rest, kubevirtv1.GroupVersion, "virtualmachineinstances")
	return err == nil && gone
}

// undefined reports that an API server serves no such resource. One that does not know yet what it serves
// answers 503 and not 404 (kube-apiserver, "the request has been made before all known HTTP paths have been installed").
func undefined(ctx context.Context, c rest.Interface, gv schema.GroupVersion, resource string) (bool, error) {
	raw, err := c.Get().AbsPath("/apis/" + gv.String()).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(raw, &list); err != nil || list.Kind != "APIResourceList" {
		return false, fmt.Errorf("read what %s serves: not a list of resources: %w", gv, err)
	}
	return !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}

func (s subresources) Expand(ctx context.Context, namespace, vm string) (*kubevirtv1.VirtualMachine, error) {
	raw, err := s.rest.Get().Namespace(namespace).Resource("virtualmachines").Name(vm).
		SubResource("expand-spec").Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	out := &kubevirtv1.VirtualMachine{}
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("decode expanded VM %q: %w", vm, err)
	}
	return out, nil
}
