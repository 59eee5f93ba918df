package story

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// GuestOptions are what differs between two guests.
type GuestOptions struct {
	// Step is the pace of the guest's own counting, as in "3s-10s"; "off" for none.
	Step string
	// VolumeMode of the disk's claim: Block (default) or Filesystem.
	VolumeMode string
	// StorageClass of the disk's claim; empty for the default class.
	StorageClass string
	// StateClass makes the claim for the firmware state before KubeVirt does, on that class.
	StateClass string
	// SecondDisk adds an empty disk in Block mode, on the class of the first.
	SecondDisk bool
}

const (
	rootDisk   = "          - name: root\n            disk:\n              bus: virtio\n"
	secondDisk = "          - name: data\n            disk:\n              bus: virtio\n"
)

// more makes what a guest needs beside its disk, and adds it to its manifest.
func (e *Env) more(ctx context.Context, ns, vm string, o GuestOptions, manifest string) (string, error) {
	if o.StateClass != "" {
		err := e.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: persistent-state-for-%[1]s-made1, namespace: %[2]s, labels: {persistent-state-for: %[1]s}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}, storageClassName: %[3]s}
`, vm, ns, o.StateClass))
		if err != nil {
			return "", err
		}
	}
	if !o.SecondDisk {
		return manifest, nil
	}
	class := ""
	if o.StorageClass != "" {
		class = ", storageClassName: " + o.StorageClass
	}
	err := e.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s-data, namespace: %s}
spec: {accessModes: [ReadWriteOnce], volumeMode: Block, resources: {requests: {storage: 64Mi}}%s}
`, vm, ns, class))
	manifest = strings.Replace(manifest, rootDisk, rootDisk+secondDisk, 1)
	return manifest + fmt.Sprintf("      - name: data\n        persistentVolumeClaim:\n          claimName: %s-data\n", vm), err
}

// Guest makes a virtual machine of the test guest with its disk, and starts it.
func (e *Env) Guest(ctx context.Context, ns, vm string, o GuestOptions) error {
	mode := "Block"
	if o.VolumeMode != "" {
		mode = o.VolumeMode
	}
	class := ""
	if o.StorageClass != "" {
		class = ", storageClassName: " + o.StorageClass
	}
	claim := vm + "-disk"
	err := e.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, namespace: %s}
spec: {accessModes: [ReadWriteOnce], volumeMode: %s, resources: {requests: {storage: %d}}%s}
`, claim, ns, mode, guestDiskBytes, class))
	if err != nil {
		return err
	}
	image, err := e.guestImage(ctx)
	if err != nil {
		return err
	}
	if err := e.loadDisk(ctx, ns, claim, image); err != nil {
		return err
	}
	manifest, err := e.Run(ctx, nil, e.GuestTool, "manifest", "-name", vm, "-namespace", ns, "-claim", claim, "-step", o.Step)
	if err != nil {
		return err
	}
	text, err := e.more(ctx, ns, vm, o, string(manifest))
	if err != nil {
		return err
	}
	return e.Apply(ctx, text)
}

// guestDiskBytes is the capacity of a guest's claim: the image and room to spare, on an ext4
// volume too.
const guestDiskBytes = 128 << 20

// guestImage builds the guest's disk image once for an Env.
func (e *Env) guestImage(ctx context.Context) (string, error) {
	file := filepath.Join(e.Work, "guest.img")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	_, err := e.Run(ctx, nil, e.GuestTool, "image", "-o", file)
	return file, err
}

// Serial returns what the guest has printed on its serial console since it was started.
func (r *Runner) Serial(ctx context.Context, ns, vm string) (string, error) {
	out, err := r.K(ctx, "-n", ns, "logs", "-l", "vm.kubevirt.io/name="+vm, "-c", "guest-console-log", "--tail=-1")
	if err != nil {
		return "", err
	}
	return strings.ReplaceAll(out, "\r", ""), nil
}

// verdictLine is the guest's word on its own state, once a boot.
var verdictLine = regexp.MustCompile(`(?m)^.*?((?:FIRST BOOT|STATE OK|STATE MISMATCH|UNSEAL FAILED).*)$`)

// Verdict waits until the guest has said in what state it found itself, and returns that line.
func (r *Runner) Verdict(ctx context.Context, limit time.Duration, ns, vm string) (string, error) {
	verdict := ""
	err := Until(ctx, limit, time.Second, func(ctx context.Context) (bool, string, error) {
		text, err := r.Serial(ctx, ns, vm)
		if err != nil {
			return false, err.Error(), nil // the pod is not there yet
		}
		if m := verdictLine.FindStringSubmatch(text); m != nil {
			verdict = strings.TrimSpace(m[1])
			return true, verdict, nil
		}
		return false, tail(text, 3), nil
	})
	return verdict, err
}

// Restart boots a guest anew, as after a loss of power, and returns what it says of its state.
func (r *Runner) Restart(ctx context.Context, limit time.Duration, ns, vm string) (string, error) {
	pods, err := r.K(ctx, "-n", ns, "get", "pods", "-l", "vm.kubevirt.io/name="+vm, "-o=name")
	if err != nil {
		return "", err
	}
	if _, err := r.K(ctx, "-n", ns, "delete", "vmi", vm, "--wait"); err != nil {
		return "", err
	}
	// The words of the boot before are not those of this one.
	for _, pod := range strings.Fields(pods) {
		if _, err := r.K(ctx, "-n", ns, "wait", "--for=delete", pod, "--timeout=120s"); err != nil {
			return "", err
		}
	}
	return r.Verdict(ctx, limit, ns, vm)
}

var stepLine = regexp.MustCompile(`(?m)gen=(\d+)`)

// Generation is the last generation that the guest has told of.
func (r *Runner) Generation(ctx context.Context, ns, vm string) (int, error) {
	text, err := r.Serial(ctx, ns, vm)
	if err != nil {
		return 0, err
	}
	all := stepLine.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return 0, fmt.Errorf("the guest %s/%s has not told a generation yet", ns, vm)
	}
	return strconv.Atoi(all[len(all)-1][1])
}

// UntilGeneration waits until the guest has counted to gen.
func (r *Runner) UntilGeneration(ctx context.Context, limit time.Duration, ns, vm string, gen int) error {
	return Until(ctx, limit, 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		now, err := r.Generation(ctx, ns, vm)
		if err != nil {
			return false, err.Error(), nil
		}
		return now >= gen, fmt.Sprintf("gen=%d", now), nil
	})
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}
