package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/inventory"
)

// machineReader reads a virtual machine and all that belongs to it, live.
type machineReader struct {
	live      client.Reader
	guests    Guests
	namespace string
}

// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachines;virtualmachineinstances,verbs=get;list;watch
// +kubebuilder:rbac:groups=kubevirt.io,resources=virtualmachineinstancemigrations,verbs=list;watch
// +kubebuilder:rbac:groups=subresources.kubevirt.io,resources=virtualmachines/expand-spec,verbs=get
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list
// +kubebuilder:rbac:groups="",resources=persistentvolumes,verbs=get
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get

// read looks at everything that inventory.Of needs.
func (r machineReader) read(ctx context.Context, name, lockHolder string) (inventory.Seen, error) {
	seen := inventory.Seen{Name: name, LockHolder: lockHolder}
	vm, err := get(ctx, r.live, r.key(name), &kubevirtv1.VirtualMachine{})
	if err != nil || vm == nil {
		return seen, err
	}
	seen.VM = vm
	for _, step := range []func(context.Context, *inventory.Seen) error{
		r.instance, r.expanded, r.pods, r.migrations, r.claims, r.targets, r.volumes, r.revisions,
	} {
		if err := step(ctx, &seen); err != nil {
			return seen, err
		}
	}
	return seen, nil
}

func (r machineReader) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: r.namespace, Name: name}
}

// get reads one object; nil if it is absent.
func get[T client.Object](ctx context.Context, live client.Reader, key types.NamespacedName, into T) (T, error) {
	var none T
	err := live.Get(ctx, key, into)
	if client.IgnoreNotFound(err) != nil {
		return none, fmt.Errorf("get %T %q: %w", into, key.Name, err)
	}
	if err != nil {
		return none, nil
	}
	return into, nil
}

func (r machineReader) instance(ctx context.Context, seen *inventory.Seen) error {
	vmi, err := get(ctx, r.live, r.key(seen.Name), &kubevirtv1.VirtualMachineInstance{})
	seen.VMI = vmi
	return err
}

// expanded asks KubeVirt only where something is to be expanded.
func (r machineReader) expanded(ctx context.Context, seen *inventory.Seen) error {
	if seen.VM.Spec.Instancetype == nil && seen.VM.Spec.Preference == nil {
		seen.Expanded = seen.VM
		return nil
	}
	vm, err := r.guests.Expand(ctx, r.namespace, seen.Name)
	if refused(err) {
		seen.ExpandFailure = err.Error()
		return nil
	}
	if err != nil {
		return fmt.Errorf("expand the spec of VM %q: %w", seen.Name, err)
	}
	seen.Expanded = vm
	return nil
}

// pods lists all of the namespace: whoever is on a claim of the VM has one.
func (r machineReader) pods(ctx context.Context, seen *inventory.Seen) error {
	pods := &corev1.PodList{}
	if err := r.live.List(ctx, pods, client.InNamespace(r.namespace)); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	own := map[types.UID]bool{}
	for _, p := range pods.Items {
		if launches(&p, seen) {
			own[p.UID] = true
			seen.Launchers = append(seen.Launchers, p)
		}
	}
	for _, p := range pods.Items {
		plugs := slices.ContainsFunc(p.OwnerReferences, func(ref metav1.OwnerReference) bool { return own[ref.UID] })
		if !own[p.UID] && !plugs {
			seen.Others = append(seen.Others, p)
		}
	}
	return nil
}

// launches says that a pod runs the guest of the VM, or ran it last.
func launches(p *corev1.Pod, seen *inventory.Seen) bool {
	if p.Labels[kubevirtv1.AppLabel] != "virt-launcher" {
		return false
	}
	if seen.VMI != nil && !seen.VMI.IsFinal() {
		return p.Labels[kubevirtv1.CreatedByLabel] == string(seen.VMI.UID)
	}
	return p.Annotations[kubevirtv1.DomainAnnotation] == seen.Name
}

func (r machineReader) migrations(ctx context.Context, seen *inventory.Seen) error {
	list := &kubevirtv1.VirtualMachineInstanceMigrationList{}
	if err := r.live.List(ctx, list, client.InNamespace(r.namespace)); err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	for _, m := range list.Items {
		if m.Spec.VMIName == seen.Name {
			seen.Migrations = append(seen.Migrations, m)
		}
	}
	return nil
}

func (r machineReader) claims(ctx context.Context, seen *inventory.Seen) error {
	seen.Claims = map[string]*corev1.PersistentVolumeClaim{}
	for _, name := range append(inventory.ClaimNames(*seen), inventory.LegacyStateClaim(seen.Name)) {
		c, err := get(ctx, r.live, r.key(name), &corev1.PersistentVolumeClaim{})
		if err != nil {
			return err
		}
		if c != nil {
			seen.Claims[name] = c
		}
	}
	list := &corev1.PersistentVolumeClaimList{}
	of := client.MatchingLabels{v1alpha1.LabelPersistentState: seen.Name}
	if err := r.live.List(ctx, list, client.InNamespace(r.namespace), of); err != nil {
		return fmt.Errorf("list claims of firmware state: %w", err)
	}
	for i := range list.Items {
		seen.Claims[list.Items[i].Name] = &list.Items[i]
	}
	mounted := inventory.MountedState(*seen)
	if mounted == "" || seen.Claims[mounted] != nil {
		return nil
	}
	c, err := get(ctx, r.live, r.key(mounted), &corev1.PersistentVolumeClaim{})
	if c != nil {
		seen.Claims[mounted] = c
	}
	return err
}

// targets looks for what migrations that were interrupted left: a claim for the state that has the VM as its owner and not
// yet its label. It is not in the list of claims, and must not be taken for one of them.
func (r machineReader) targets(ctx context.Context, seen *inventory.Seen) error {
	if seen.VMI != nil && !seen.VMI.IsFinal() {
		return nil // its own state is in the claim that it mounts
	}
	list := &corev1.PersistentVolumeClaimList{}
	if err := r.live.List(ctx, list, client.InNamespace(r.namespace), client.HasLabels{v1alpha1.LabelMigrationName}); err != nil {
		return fmt.Errorf("list claims of migrations: %w", err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		if metav1.IsControlledBy(c, seen.VM) && c.DeletionTimestamp == nil && strings.HasPrefix(c.Name, v1alpha1.LabelPersistentState) {
			seen.Targets = append(seen.Targets, c.Name)
		}
	}
	return nil
}

func (r machineReader) volumes(ctx context.Context, seen *inventory.Seen) error {
	seen.Volumes = map[string]*corev1.PersistentVolume{}
	for _, c := range seen.Claims {
		if c.Spec.VolumeName == "" {
			continue
		}
		pv, err := get(ctx, r.live, types.NamespacedName{Name: c.Spec.VolumeName}, &corev1.PersistentVolume{})
		if err != nil {
			return err
		}
		if pv != nil {
			seen.Volumes[pv.Name] = pv
		}
	}
	return nil
}

func (r machineReader) revisions(ctx context.Context, seen *inventory.Seen) error {
	for _, name := range inventory.RevisionNames(*seen) {
		revision, err := get(ctx, r.live, r.key(name), &appsv1.ControllerRevision{})
		if err != nil {
			return err
		}
		if revision != nil {
			revision.ManagedFields = nil
			seen.Revisions = append(seen.Revisions, *revision)
		}
	}
	return nil
}
