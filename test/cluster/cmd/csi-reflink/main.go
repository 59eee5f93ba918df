// Command csi-reflink serves the CSI driver of package csireflink until it is told to stop.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/vmstate/vmstate/test/cluster/csireflink"
)

func main() {
	var o csireflink.Options
	flag.StringVar(&o.Name, "driver", "reflink.csi.test", "name of the driver")
	flag.StringVar(&o.Node, "node", "node1", "name of the node")
	flag.StringVar(&o.Root, "root", "", "folder on a file system with reflink")
	flag.StringVar(&o.Socket, "socket", "", "socket to serve CSI at")
	flag.StringVar(&o.Registration, "registration", "", "socket to tell the kubelet at; empty to leave it out")
	flag.StringVar(&o.Control, "control", "", "control file: delays and failures on cue")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	driver, err := csireflink.New(o)
	if err != nil {
		log.Fatalf("csi-reflink: error: %v", err)
	}
	if err := driver.Run(ctx); err != nil {
		log.Fatalf("csi-reflink: error: %v", err)
	}
}
