package kube

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	groupsnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	kubevirtv1 "kubevirt.io/api/core/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	kubevirtsnapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/test/assets"
)

// buildCommand builds all that this package starts.
const buildCommand = "make parts"

// Binary is the path of a program in the assets folder. A test that asks for one that is missing fails.
func Binary(t testing.TB, name string) string {
	t.Helper()
	folder, err := assets.Folder()
	if err != nil {
		t.Fatal(err)
	}
	path, err := (&Cluster{assets: folder}).binary(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *Cluster) binary(name string) (string, error) {
	path := filepath.Join(c.assets, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is needed; build it with `%s`: %w", name, buildCommand, err)
	}
	return path, nil
}

// definitions are the folders of custom resource definitions to install.
func (c *Cluster) definitions() ([]string, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	snapshots, err := moduleFolder(root, "github.com/kubernetes-csi/external-snapshotter/client/v8")
	if err != nil {
		return nil, err
	}
	folders := []string{filepath.Join(root, "config", "crd"), filepath.Join(snapshots, "config", "crd")}
	if c.parts[KubeVirt] {
		folder := filepath.Join(c.assets, "crds", "kubevirt")
		if _, err := os.Stat(folder); err != nil {
			return nil, fmt.Errorf("KubeVirt's definitions are needed; build them with `%s`: %w", buildCommand, err)
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

// Root is the top of the checkout: the folder of the product's module.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/vmstate/vmstate\n") {
			return dir, nil
		}
		if parent := filepath.Dir(dir); parent != dir {
			dir = parent
			continue
		}
		return "", errors.New("not inside a checkout of github.com/vmstate/vmstate")
	}
}

// moduleFolder is where the go command keeps a module that the product requires.
func moduleFolder(root, module string) (string, error) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find module %q: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Scheme knows every kind that vmstate reads or writes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme,
		snapshotv1.AddToScheme, groupsnapshotv1.AddToScheme,
		kubevirtv1.AddToScheme, instancetypev1beta1.AddToScheme, kubevirtsnapshotv1beta1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// remove deletes obj after a test, whose own context has ended by then.
func (c *Cluster) remove(t testing.TB, obj client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(c.Client.Delete(context.Background(), obj)); err != nil {
		t.Errorf("delete %q: %v", obj.GetName(), err)
	}
}
