// Command init is PID 1 and the whole user space of the test guest; what it is for
// stands in the documentation of package guest.
//
// It prints on the serial console, one fact a line, in this order:
//
//	INIT …
//	FIRST BOOT … | STATE OK … | STATE MISMATCH … | UNSEAL FAILED …
//	READY ok=true|false …
//	STEP gen=n       after steps, at most one line a second
//	STEPS STOPPED …  the variable store is nearly full, or a step failed
//
// Lines end in a bare newline and start at the beginning of a line, since under
// KubeVirt people and tests read them from a log (container guest-console-log).
//
// How often it steps by itself comes from the word vmstate.step=PACE (package
// pace), looked for in the SMBIOS chassis asset tag (under KubeVirt:
// spec.domain.chassis.asset), then on the kernel command line. Default: off.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/go-tpm/tpm2/transport/linuxtpm"

	"github.com/vmstate/vmstate/test/guest/pace"
	"github.com/vmstate/vmstate/test/guest/protocol"
	"github.com/vmstate/vmstate/test/guest/tpmnv"
)

const (
	dataDir    = "/data"
	tpmDevice  = "/dev/tpmrm0"
	stepOption = "vmstate.step"

	deviceTimeout = 10 * time.Second
)

var consoleMu sync.Mutex

// say prints one whole line on the console.
func say(format string, a ...any) {
	consoleMu.Lock()
	defer consoleMu.Unlock()
	_, _ = os.Stdout.WriteString(fmt.Sprintf(format, a...) + "\n")
}

func main() {
	start := time.Now()
	mountKernel()
	setConsole()
	say("\nINIT uptime=%s", uptime())
	loadModules()
	if err := bootGuest(start); err != nil {
		say("FATAL %v", err)
	}
	select {} // PID 1 must not end: the kernel would panic and hide the last line
}

// bootGuest mounts and opens everything, prints the verdict, and serves the
// console until the machine goes down. An error leaves the guest without verdict.
func bootGuest(start time.Time) error {
	if err := mountDevices(); err != nil {
		return err
	}
	if err := waitFor(tpmDevice, deviceTimeout); err != nil {
		return err
	}
	conn, err := linuxtpm.Open(tpmDevice)
	if err != nil {
		return fmt.Errorf("open TPM: %w", err)
	}
	m := &machine{tpm: tpmnv.New(conn), efi: &efiPlace{}, fs: &dataFS{}}
	m.guest = &protocol.Guest{Disk: vaultDir(dataDir), TPM: m.tpm, EFI: m.efi}
	m.stepper = newStepper(m.guest, m.efi)
	go serveAgentPort(m)

	outcome := m.guest.Boot()
	say("%s", outcome.Line)
	p, err := pace.Parse(option(stepOption))
	if err != nil {
		say("STEPS %v", err)
	}
	pcr7, err := m.tpm.PCR7()
	if err != nil {
		pcr7 = err.Error()
	}
	say("READY ok=%v step=%s uptime=%s init_ms=%d secureboot=%s tpm=%s pcr7=%s",
		outcome.OK, p, uptime(), time.Since(start).Milliseconds(), secureBoot(), tpmDriver(), pcr7)
	go m.stepper.run()
	if outcome.OK {
		m.stepper.set(p)
	}
	m.serveConsole(os.Stdin)
	return nil
}
