// Command manifests writes KubeVirt's own objects as YAML, taken from KubeVirt's Go packages.
//
//	manifests crds DIR            every custom resource definition, one file each
//	manifests operator NAMESPACE  what virt-operator needs before it starts, to stdout: the definition of KubeVirt and RBAC
package main

import (
	"fmt"
	"os"
	"path/filepath"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "crds":
		return writeCRDs(args[1])
	case len(args) == 2 && args[0] == "operator":
		return printOperator(args[1])
	default:
		return fmt.Errorf("usage: manifests crds DIR | manifests operator NAMESPACE")
	}
}

var definitions = []func() (*extv1.CustomResourceDefinition, error){
	components.NewKubeVirtCrd,
	components.NewMigrationPolicyCrd,
	components.NewPluginCrd,
	components.NewPresetCrd,
	components.NewReplicaSetCrd,
	components.NewVirtualMachineBackupCrd,
	components.NewVirtualMachineBackupTrackerCrd,
	components.NewVirtualMachineCloneCrd,
	components.NewVirtualMachineClusterInstancetypeCrd,
	components.NewVirtualMachineClusterPreferenceCrd,
	components.NewVirtualMachineCrd,
	components.NewVirtualMachineExportCrd,
	components.NewVirtualMachineInstanceCrd,
	components.NewVirtualMachineInstanceMigrationCrd,
	components.NewVirtualMachineInstancetypeCrd,
	components.NewVirtualMachinePoolCrd,
	components.NewVirtualMachinePreferenceCrd,
	components.NewVirtualMachineRestoreCrd,
	components.NewVirtualMachineSnapshotContentCrd,
	components.NewVirtualMachineSnapshotCrd,
}

func writeCRDs(dir string) error {
	for _, define := range definitions {
		crd, err := define()
		if err != nil {
			return err
		}
		raw, err := yaml.Marshal(crd)
		if err != nil {
			return fmt.Errorf("encode %q: %w", crd.Name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, crd.Name+".yaml"), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func printOperator(namespace string) error {
	crd, err := components.NewKubeVirtCrd()
	if err != nil {
		return err
	}
	for _, object := range append([]any{crd}, rbac.GetAllOperator(namespace)...) {
		raw, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		fmt.Printf("---\n%s", raw)
	}
	return nil
}
