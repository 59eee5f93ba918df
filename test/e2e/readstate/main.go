// Command readstate copies the firmware state below one folder into another, with the product's
// own reader and writer. The end-to-end tests run it inside the node, where the state volume of a
// running virtual machine is mounted, to compose what the product never does: a copy of the state
// that nothing binds to the disks.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/vmstate/vmstate/pkg/firmware"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: readstate FROM TO")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "readstate:", err)
		os.Exit(1)
	}
}

func run(from, to string) error {
	state, err := firmware.Read(context.Background(), from, firmware.Limits{})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return firmware.Write(to, state.Tree, firmware.WriteOptions{})
}
