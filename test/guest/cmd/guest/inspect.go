package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/inspect"
)

// report is the output of inspect -json. Its names are used by other programs.
type report struct {
	generation.Reading
	generation.Verdict
	// Moment is true if the three places are of one moment.
	Moment bool `json:"moment"`
}

func runInspect(ctx context.Context, flags *flag.FlagSet, args []string) error {
	disk := flags.String("disk", "", "raw image, block device, or ext4 volume with disk.img")
	state := flags.String("state", "", "state folder in KubeVirt's layout, or the ext4 volume with it")
	asJSON := flags.Bool("json", false, "print JSON")
	if err := parse(flags, args, "disk", "state"); err != nil {
		return err
	}
	reading, err := inspect.Read(ctx, *disk, *state)
	if err != nil {
		return err
	}
	verdict := generation.Judge(reading)
	r := report{Reading: reading, Verdict: verdict, Moment: verdict.Moment()}
	if *asJSON {
		err = json.NewEncoder(os.Stdout).Encode(r)
	} else {
		printReport(r)
	}
	if err == nil && !r.Moment {
		return errDamaged
	}
	return err
}

func printReport(r report) {
	for _, p := range []struct {
		name string
		mark *generation.Mark
	}{{"disk", r.Disk}, {"TPM", r.TPM}, {"EFI", r.EFI}} {
		if p.mark == nil {
			fmt.Printf("%-4s  absent\n", p.name)
			continue
		}
		fmt.Printf("%-4s  %d  %s\n", p.name, p.mark.Generation, p.mark.Identity)
	}
	switch {
	case r.Moment:
		fmt.Printf("one moment (%s), generation %d\n", r.Kind, r.Disk.Generation)
	case r.Kind == generation.Blank:
		fmt.Println("blank: never booted")
	default:
		fmt.Printf("NOT one moment: %s\n", r.Reason)
	}
}
