// Command box is the static tool of the cluster's own image: the sandbox of every pod, and a way to fill and read volumes.
//
//	box pause        wait for a signal
//	box write FILE   write stdin to a file or block device; blocks of zeros become holes
//	box read FILE    write a file or block device to stdout
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const chunk = 1 << 20

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "box: error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "pause":
		wait()
		return nil
	case len(args) == 2 && args[0] == "write":
		return write(args[1], os.Stdin)
	case len(args) == 2 && args[0] == "read":
		return read(args[1], os.Stdout)
	default:
		return errors.New("usage: box pause | box write FILE | box read FILE")
	}
}

// wait ends at a signal. As process 1 of a pod it also reaps what was orphaned there.
func wait() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

// write replaces the content of a file, or the beginning of a device that holds zeros.
func write(name string, in io.Reader) error {
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o660)
	if err != nil {
		return err
	}
	size, err := writeSparse(out, in)
	if info, stat := out.Stat(); err == nil && stat == nil && info.Mode().IsRegular() {
		err = out.Truncate(size)
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

func writeSparse(out io.WriterAt, in io.Reader) (size int64, err error) {
	buffer, zeros := make([]byte, chunk), make([]byte, chunk)
	for {
		n, err := io.ReadFull(in, buffer)
		if n > 0 && !bytes.Equal(buffer[:n], zeros[:n]) {
			if _, err := out.WriteAt(buffer[:n], size); err != nil {
				return size, err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return size, nil
		}
		if err != nil {
			return size, err
		}
	}
}

func read(name string, out io.Writer) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, chunk))
	return err
}
