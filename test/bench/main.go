// Command bench measures the engine against restic on the image vmgen-1: a full
// backup, one without a change, one with 1 % of scattered change, and a restore. Each
// step is a process of its own, so CPU seconds, memory and input and output are what
// the kernel counted for it. It prints one "name value unit" a line and writes
// nothing but its work directory, which it keeps between runs for the images.
//
//	go run . [-dir DIR] [-size BYTES] [-runs N]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == stepCommand {
		exit(step(os.Args[2:]))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	b := &bench{}
	flag.StringVar(&b.dir, "dir", filepath.Join(cache, "vmstate-bench"), "work directory, on a disk with three times the size free")
	flag.Int64Var(&b.size, "size", fullSize, "size of the image in bytes")
	flag.IntVar(&b.runs, "runs", 1, "how often to measure; the least of each figure counts")
	flag.BoolVar(&b.alone, "alone", false, "leave restic out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exit(b.run(ctx))
}

func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintf(os.Stderr, "bench: error: %v\n", err)
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	os.Exit(1)
}
