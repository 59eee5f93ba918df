// Command bench measures the engine against restic and kopia: CPU seconds, bytes and
// objects stored, requests, memory. Each step is a process of its own, so its figures
// are what the kernel counted for that process; requests are counted by a proxy in
// front of a real S3 server. It prints one "name value unit" a line, the median of its
// rounds, then ratios: how much dearer the others are. Images are kept in a cache folder
// between runs; everything else is removed at the end.
//
//	go run . [-only STEP,…] [-rounds N] [-engines NAME,…] [-stores dir,tls] [-size BYTES]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// what can be measured, in the order in which it is.
var all = []string{
	"full", "unchanged", "scatter", "restore", "inplace", "back", "cluster", "verify", // vmgen-1
	"chain",  // 30 increments
	"days",   // four days of a real guest
	"memory", // a sparse disk of 16 TiB
	"upload", // the S3 client alone
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == stepCommand {
		exit(step(os.Args[2:]))
	}
	exit(run())
}

func run() error {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	b := &bench{figures: newFigures()}
	flag.StringVar(&b.cache, "dir", filepath.Join(cache, "vmstate-bench"), "folder that keeps the images; the disk needs eight times the size free")
	flag.Int64Var(&b.size, "size", fullSize, "size of the vmgen-1 image in bytes")
	flag.IntVar(&b.rounds, "rounds", 3, "how often to measure; medians are printed")
	flag.BoolVar(&b.profile, "profile", false, "have the engine's steps write CPU profiles into the folder of the images")
	flag.BoolVar(&b.table, "table", false, "print the rows of docs/performance.md as well")
	only := flag.String("only", strings.Join(all, ","), "what to measure")
	engines := flag.String("engines", strings.Join(engineNames, ","), "whom to measure")
	stores := flag.String("stores", "dir,tls", "where backups go: dir is a directory, tls an S3 server over TLS")
	flag.Parse()
	for _, choice := range []struct {
		given string
		known []string
		into  *[]string
	}{{*only, all, &b.only}, {*engines, engineNames, &b.engines}, {*stores, []string{"dir", "tls"}, &b.stores}} {
		for word := range strings.SplitSeq(choice.given, ",") {
			if !slices.Contains(choice.known, word) {
				return fmt.Errorf("%w: %q is none of %s", errUsage, word, strings.Join(choice.known, ", "))
			}
			*choice.into = append(*choice.into, word)
		}
	}
	if flag.NArg() > 0 || b.rounds < 1 {
		return fmt.Errorf("%w: %q", errUsage, flag.Args())
	}
	if b.cache, err = filepath.Abs(b.cache); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return b.run(ctx)
}

var errUsage = errors.New("usage")

func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	fmt.Fprintf(os.Stderr, "bench: error: %v\n", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}
