package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover"
)

// objects are the two kinds that a mover touches, in its own namespace.
type objects struct {
	namespace string
	reports   dynamic.ResourceInterface
	secrets   dynamic.ResourceInterface
}

func newObjects(cluster *rest.Config, namespace string) (*objects, error) {
	if namespace == "" {
		return nil, fmt.Errorf("%w: the namespace is not told", mover.ErrTask)
	}
	client, err := dynamic.NewForConfig(cluster)
	if err != nil {
		return nil, fmt.Errorf("client of the API server: %w", err)
	}
	return &objects{
		namespace: namespace,
		reports:   client.Resource(v1alpha1.GroupVersion.WithResource("vmstatereports")).Namespace(namespace),
		secrets:   client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(namespace),
	}, nil
}

func (o *objects) report(ctx context.Context, name string) (*v1alpha1.VMStateReport, error) {
	found, err := o.reports.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get report %q: %w", name, err)
	}
	var report v1alpha1.VMStateReport
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &report); err != nil {
		return nil, fmt.Errorf("get report %q: %w", name, err)
	}
	return &report, nil
}

// secretKeeper keeps repository keys in a Secret. It needs no permission but to
// create one: a mover can neither read nor replace the keys of another store.
type secretKeeper struct {
	objects *objects
	name    string
}

var _ mover.KeyKeeper = secretKeeper{}

func (k secretKeeper) Keep(ctx context.Context, data map[string][]byte) error {
	immutable := true
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: k.name, Namespace: k.objects.namespace,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy},
		},
		Immutable: &immutable,
		Data:      data,
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(secret)
	if err != nil {
		return err
	}
	_, err = k.objects.secrets.Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("secret %q: %w", k.name, mover.ErrKeysExist)
	}
	if err != nil {
		return fmt.Errorf("create secret %q: %w", k.name, err)
	}
	return nil
}
