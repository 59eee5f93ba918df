package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/vmstate/vmstate/test/guest/image"
	"github.com/vmstate/vmstate/test/guest/pace"
)

func runImage(ctx context.Context, flags *flag.FlagSet, args []string) error {
	out := flags.String("o", "", "image to write")
	step := flags.String("step", "", "pace of the guest's own steps: off, fast, 3s, 3s-10s")
	source := flags.String("source", "", "folder of the guest's module (default: where this was compiled)")
	if err := parse(flags, args, "o"); err != nil {
		return err
	}
	p, err := pace.Parse(*step)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if os.Geteuid() == 0 { // else the tool that is missing says so
		if err := installMissing(ctx); err != nil {
			return err
		}
	}
	start := time.Now()
	return image.Build(ctx, image.Options{Out: *out, Step: p, Source: *source, Progress: func(line string) {
		fmt.Fprintf(os.Stderr, "guest: %5.1f s  %s\n", time.Since(start).Seconds(), line)
	}})
}
