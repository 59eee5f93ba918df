package story

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

const (
	prodNS, backNS = "demo-prod", "demo-back"
	vmName         = "db"
	bootLimit      = 5 * time.Minute
)

// Teller is who the story is told to: numbered stages, what happens in them, and what commands print.
type Teller interface {
	Stage(format string, args ...any)
	Say(format string, args ...any)
	Show(command, output string)
}

// MainJobStages is how many stages MainJob tells of.
const MainJobStages = 6

// MainJob is the story from a running guest to its return. What it made in the cluster is removed
// at the end of a run that went well, and kept after one that failed, to be looked at.
func (e *Env) MainJob(ctx context.Context, t Teller) error {
	keys, err := e.prepare(ctx, t)
	if err != nil {
		return err
	}
	backup, err := e.backUp(ctx, t)
	if err != nil {
		return err
	}
	t.Stage("The disaster: the virtual machine and its namespace are deleted, every volume with them")
	if err := e.NoNamespace(ctx, prodNS); err != nil {
		return err
	}
	left, err := e.K(ctx, "get", "persistentvolumes", "--no-headers", "--ignore-not-found")
	if err != nil {
		return err
	}
	t.Show("kubectl get persistentvolumes", left+fmt.Sprintf("(%d left)", strings.Count(left, "\n")))
	if err := e.bringBack(ctx, t, keys, backup); err != nil {
		return err
	}
	if err := e.counterExample(ctx, t); err != nil {
		return err
	}
	return e.NoNamespace(ctx, backNS)
}

// prepare boots the guest and makes the store.
func (e *Env) prepare(ctx context.Context, t Teller) (keys *KeyPair, err error) {
	t.Stage("A guest whose disk opens only with its own vTPM boots, and counts generations")
	if err := e.Namespace(ctx, prodNS); err != nil {
		return nil, err
	}
	if err := e.Guest(ctx, prodNS, vmName, GuestOptions{Step: "3s-8s"}); err != nil {
		return nil, err
	}
	verdict, err := e.Verdict(ctx, bootLimit, prodNS, vmName)
	if err != nil {
		return nil, err
	}
	t.Say("serial console: %s", verdict)
	if err := e.UntilGeneration(ctx, time.Minute, prodNS, vmName, 2); err != nil {
		return nil, err
	}
	t.Say("it goes on counting: on disk, in the TPM's NV memory, in an EFI variable")

	t.Stage("A store: an age identity that never enters the cluster, a bucket, a probe")
	if keys, err = e.Keygen(ctx); err != nil {
		return nil, err
	}
	t.Say("kubectl vmstate keygen: recipient %s…", keys.Recipient[:24])
	if err := e.Store(ctx, prodNS, e.Bucket, keys.Recipient); err != nil {
		return nil, err
	}
	out, err := e.K(ctx, "-n", prodNS, "get", "vmstatestores")
	t.Show("kubectl get vmstatestores", out)
	return keys, err
}

// backUp captures the guest while it runs and counts.
func (e *Env) backUp(ctx context.Context, t Teller) (string, error) {
	const name = "db-before-disaster"
	t.Stage("The backup: one moment of disk, vTPM and EFI variables, taken while the guest runs and counts")
	before, err := e.Generation(ctx, prodNS, vmName)
	if err != nil {
		return "", err
	}
	if _, err := e.Backup(ctx, prodNS, name, vmName, func(m string) { t.Say("%s", m) }); err != nil {
		return "", err
	}
	after, err := e.Generation(ctx, prodNS, vmName)
	if err != nil {
		return "", err
	}
	t.Say("the guest counted from %d to %d meanwhile", before, after)
	out, err := e.K(ctx, "-n", prodNS, "get", "vmstatebackups")
	t.Show("kubectl get vmstatebackups", out)
	return name, err
}

var stateOK = regexp.MustCompile(`^STATE OK gen=(\d+)`)

// bringBack restores into an empty namespace from the bucket and the identity alone.
func (e *Env) bringBack(ctx context.Context, t Teller, keys *KeyPair, backup string) error {
	t.Stage("The restore: into an empty namespace, from the bucket and the age identity alone")
	dir := filepath.Join(e.Work, "files")
	gen, err := e.RecordedGeneration(ctx, keys, prodNS+"/"+vmName, dir)
	if err != nil {
		return err
	}
	t.Say("kubectl vmstate restore-files, then inspect: the bucket's backup %s holds generation %d on disk, in the TPM and in EFI", backup, gen)
	if err := e.Namespace(ctx, backNS); err != nil {
		return err
	}
	if err := e.Store(ctx, backNS, e.Bucket, keys.Recipient); err != nil {
		return err
	}
	if err := e.Identity(ctx, backNS, keys.Identity); err != nil {
		return err
	}
	spec := RestoreSpec{
		Name: "db-back", Mode: "NewVM",
		Source: fmt.Sprintf("{storeRef: {name: main}, vm: %s/%s, commit: latest}", prodNS, vmName),
		Extra:  fmt.Sprintf("  target: {vmName: %s}\n  startPolicy: Start\n", vmName),
	}
	if err := e.Restore(ctx, backNS, spec, func(m string) { t.Say("%s", m) }); err != nil {
		return err
	}
	out, err := e.K(ctx, "-n", backNS, "get", "vmstaterestores")
	if err != nil {
		return err
	}
	t.Show("kubectl get vmstaterestores", out)
	verdict, err := e.Verdict(ctx, bootLimit, backNS, vmName)
	if err != nil {
		return err
	}
	t.Say("serial console: %s", verdict)
	if m := stateOK.FindStringSubmatch(verdict); m == nil || m[1] != fmt.Sprint(gen) {
		return fmt.Errorf("the restored guest says %q, and the backup holds generation %d", verdict, gen)
	}
	return nil
}

// counterExample boots the same disk with blank firmware state.
func (e *Env) counterExample(ctx context.Context, t Teller) error {
	t.Stage("The counter-example: the same disk with a blank vTPM, as a tool leaves it that saves disks alone")
	spec := RestoreSpec{
		Name: "db-blank", Mode: "NewVM",
		Source: fmt.Sprintf("{storeRef: {name: main}, vm: %s/%s, commit: latest}", prodNS, vmName),
		Extra:  "  target: {vmName: db-blank}\n  tpmPolicy: Blank\n  firmwareUUID: New\n  macAddresses: New\n  startPolicy: Start\n",
	}
	if err := e.Restore(ctx, backNS, spec, nil); err != nil {
		return err
	}
	verdict, err := e.Verdict(ctx, bootLimit, backNS, "db-blank")
	if err != nil {
		return err
	}
	t.Say("serial console: %s", verdict)
	if !strings.HasPrefix(verdict, "UNSEAL FAILED") {
		return fmt.Errorf("a guest with a blank vTPM says %q; it must not open its disk", verdict)
	}
	return nil
}
