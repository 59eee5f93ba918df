package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/vmstate/vmstate/test/guest/kubevirt"
	"github.com/vmstate/vmstate/test/guest/pace"
)

func runManifest(_ context.Context, flags *flag.FlagSet, args []string) error {
	var o kubevirt.Options
	flags.StringVar(&o.Name, "name", "", "VM name")
	flags.StringVar(&o.Namespace, "namespace", "default", "namespace")
	flags.StringVar(&o.Claim, "claim", "", "PVC with the disk image (default: NAME-disk)")
	flags.StringVar(&o.FirmwareUUID, "uuid", "", "firmware UUID (default: KubeVirt's choice)")
	flags.BoolVar(&o.Network, "network", false, "pod network with masquerade")
	step := flags.String("step", "", "pace of the guest's own steps, over the image's")
	err := parse(flags, args, "name")
	if err != nil {
		return err
	}
	if o.Step, err = pace.Parse(*step); err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	text, err := kubevirt.VM(o)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	fmt.Print(text)
	return nil
}
