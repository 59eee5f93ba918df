package vm

import (
	"path/filepath"
	"strconv"
)

const (
	memoryMiB = 256 // 128 is too little for the firmware, 160 boots
	cpuModel  = "qemu64,+rdrand"
	agentPort = "org.qemu.guest_agent.0"
)

func swtpmArgs(run string, c Config) []string {
	return []string{"socket", "--tpm2", "--tpmstate", "dir=" + c.TPMDir + ",mode=0600",
		"--ctrl", "type=unixio,path=" + filepath.Join(run, "swtpm.sock"), "--terminate"}
}

// qemuArgs is the guest's hardware. The CPU model is the cheapest one to emulate;
// rdrand spares the kernel its wait for entropy.
func qemuArgs(run string, c Config) []string {
	in := func(name string) string { return filepath.Join(run, name) }
	args := []string{"-nodefaults", "-no-user-config", "-display", "none", "-vga", "none", "-nic", "none",
		"-machine", "q35,smm=off", "-accel", "tcg", "-cpu", cpuModel, "-smp", "1", "-m", strconv.Itoa(memoryMiB),
		"-drive", "if=pflash,format=raw,unit=0,readonly=on,file=" + firmwareCode,
		"-drive", "if=pflash,format=raw,unit=1,file=" + c.Vars,
		"-drive", "if=none,id=d0,format=raw,cache=writeback,file=" + c.Disk,
		"-device", "virtio-blk-pci,drive=d0,bootindex=1",
		"-chardev", "socket,id=tpm0,path=" + in("swtpm.sock"),
		"-tpmdev", "emulator,id=t0,chardev=tpm0", "-device", "tpm-crb,tpmdev=t0",
		"-chardev", "socket,id=s0,server=on,wait=on,path=" + in("serial.sock"), "-serial", "chardev:s0",
		"-qmp", "unix:" + in("qmp.sock") + ",server=on,wait=off",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=qga,server=on,wait=off,path=" + in("qga.sock"),
		"-device", "virtserialport,chardev=qga,name=" + agentPort}
	if c.Asset != "" {
		args = append(args, "-smbios", "type=3,asset="+c.Asset)
	}
	return args
}
