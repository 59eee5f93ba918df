package main

import (
	"context"
	"encoding/json"
	"fmt"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
)

type (
	snapshotClasses = snapshotv1.VolumeSnapshotClassList
	groupClasses    = groupsnapshotv1.VolumeGroupSnapshotClassList
)

// see reads all that decides what a backup of a virtual machine would hold.
func (c *connection) see(ctx context.Context, vm string) (inventory.Seen, error) {
	in := inventory.Seen{
		Name: vm, Claims: map[string]*corev1.PersistentVolumeClaim{}, Volumes: map[string]*corev1.PersistentVolume{},
	}
	var err error
	if in.VM, err = named[kubevirtv1.VirtualMachine](ctx, c, vm); err != nil || in.VM == nil {
		return in, err
	}
	if in.VMI, err = named[kubevirtv1.VirtualMachineInstance](ctx, c, vm); err != nil {
		return in, err
	}
	if in.VM.Spec.Instancetype != nil || in.VM.Spec.Preference != nil {
		if in.Expanded, err = c.expand(ctx, vm); err != nil {
			return in, err
		}
	}
	if err := c.seeInstance(ctx, &in); err != nil {
		return in, err
	}
	return in, c.seeClaims(ctx, &in)
}

// expand applies instancetype and preference, as KubeVirt does.
func (c *connection) expand(ctx context.Context, vm string) (*kubevirtv1.VirtualMachine, error) {
	config := rest.CopyConfig(c.config)
	config.APIPath = "/apis"
	config.GroupVersion = &schema.GroupVersion{Group: "subresources.kubevirt.io", Version: "v1"}
	config.NegotiatedSerializer = clientscheme.Codecs.WithoutConversion()
	subresources, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	raw, err := subresources.Get().Namespace(c.namespace).Resource("virtualmachines").Name(vm).SubResource("expand-spec").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("expand instancetype and preference of VM %q: %w", vm, err)
	}
	expanded := &kubevirtv1.VirtualMachine{}
	if err := json.Unmarshal(raw, expanded); err != nil {
		return nil, fmt.Errorf("decode expanded VM %q: %w", vm, err)
	}
	return expanded, nil
}

// seeInstance reads the pods and migrations of an instance.
func (c *connection) seeInstance(ctx context.Context, in *inventory.Seen) error {
	if in.VMI == nil {
		return nil
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(c.namespace), client.MatchingLabels{kubevirtv1.CreatedByLabel: string(in.VMI.UID)}); err != nil {
		return fmt.Errorf("list launcher pods: %w", err)
	}
	in.Launchers = pods.Items
	migrations := &kubevirtv1.VirtualMachineInstanceMigrationList{}
	if err := c.List(ctx, migrations, client.InNamespace(c.namespace)); err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	for _, m := range migrations.Items {
		if m.Spec.VMIName == in.VMI.Name {
			in.Migrations = append(in.Migrations, m)
		}
	}
	return nil
}

// seeClaims reads the claims that the virtual machine, its instance and the state's label name, and their volumes.
func (c *connection) seeClaims(ctx context.Context, in *inventory.Seen) error {
	labelled := &corev1.PersistentVolumeClaimList{}
	if err := c.List(ctx, labelled, client.InNamespace(c.namespace), client.MatchingLabels{v1alpha1.LabelPersistentState: in.Name}); err != nil {
		return fmt.Errorf("list state claims: %w", err)
	}
	for i := range labelled.Items {
		in.Claims[labelled.Items[i].Name] = &labelled.Items[i]
	}
	for _, name := range claimNames(in) {
		if in.Claims[name] != nil {
			continue
		}
		claim, err := named[corev1.PersistentVolumeClaim](ctx, c, name)
		if err != nil {
			return err
		}
		if claim != nil {
			in.Claims[name] = claim
		}
	}
	for _, claim := range in.Claims {
		name := claim.Spec.VolumeName
		if name == "" {
			continue
		}
		volume := &corev1.PersistentVolume{}
		err := c.Get(ctx, client.ObjectKey{Name: name}, volume)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get volume %q: %w", name, err)
		}
		if err == nil {
			in.Volumes[name] = volume
		}
	}
	return nil
}

func claimNames(in *inventory.Seen) []string {
	out := []string{inventory.LegacyStateClaim(in.Name)}
	add := func(volumes []kubevirtv1.Volume) {
		for _, v := range volumes {
			switch {
			case v.PersistentVolumeClaim != nil:
				out = append(out, v.PersistentVolumeClaim.ClaimName)
			case v.DataVolume != nil:
				out = append(out, v.DataVolume.Name)
			}
		}
	}
	if in.VM.Spec.Template != nil {
		add(in.VM.Spec.Template.Spec.Volumes)
	}
	if in.VMI != nil {
		add(in.VMI.Spec.Volumes)
	}
	return out
}

// listOptional lists a kind; nil if the cluster does not serve it.
func listOptional[T any, P interface {
	*T
	client.ObjectList
}](ctx context.Context, c *connection) (P, error) {
	list := P(new(T))
	err := c.List(ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil // absent and unreadable are two answers, and this is the first
	}
	if err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	return list, nil
}
