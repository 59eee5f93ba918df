package build

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	rootfsSuite = "trixie"
	// qemu is the user that KubeVirt runs guests as; the number is part of KubeVirt's interface.
	qemu = 107
	// policy is the script that Debian asks before it starts a service.
	policy = "usr/sbin/policy-rc.d"
)

// rootfsPackages is what virt-launcher and virt-handler call. Debian's libvirt has the driver for QEMU in one daemon.
var rootfsPackages = []string{
	"libvirt-daemon", "libvirt-daemon-driver-qemu", "libvirt-daemon-log", "libvirt-clients",
	"qemu-system-x86", "qemu-utils", "swtpm", "swtpm-tools", "ovmf", "nftables", "iproute2", "kmod",
}

// virtqemud starts Debian's monolithic libvirtd under the name and the socket that virt-launcher asks for.
const virtqemud = `#!/bin/sh
mkdir -p /run/libvirt
ln -sf libvirt-sock /run/libvirt/virtqemud-sock
exec /usr/sbin/virtqemud.bin "$@"
`

// makeRootfs writes rootfs.tar: a Debian with libvirt, QEMU, swtpm and OVMF, laid out as KubeVirt expects of its images.
func makeRootfs(b *Builder, dir string) error {
	kubeVirt, err := b.ModuleDir("tools/kubevirt", "kubevirt.io/kubevirt")
	if err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := bootstrap(root); err != nil {
		return err
	}
	for _, step := range []func(root, kubeVirt string) error{addUsers, addLibvirt, addFirmware, addFolders, dropDocs} {
		if err := step(root, kubeVirt); err != nil {
			return fmt.Errorf("prepare root file system: %w", err)
		}
	}
	pack := exec.Command("tar", "--numeric-owner", "--sort=name", "-C", root, "-cf", filepath.Join(dir, "rootfs.tar"), ".")
	if err := run(pack); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// bootstrap makes a small Debian and installs the packages in it with its own apt, which knows virtual packages and
// alternatives better than debootstrap. Both leave mounts behind when they are stopped half way, so they get a mount
// namespace that dies with them.
func bootstrap(root string) error {
	private := func(args ...string) error {
		c := exec.Command("unshare", append([]string{"--mount", "--propagation", "private"}, args...)...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		return run(c)
	}
	from, err := mirror()
	if err != nil {
		return err
	}
	if err := private("debootstrap", "--variant=minbase", rootfsSuite, root, from); err != nil {
		return err
	}
	if err := copyFile("/etc/resolv.conf", filepath.Join(root, "etc", "resolv.conf"), 0o644); err != nil {
		return err
	}
	// No service is to start in there.
	if err := os.WriteFile(filepath.Join(root, policy), []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return err
	}
	install := []string{"--pid", "--fork", "--mount-proc=" + filepath.Join(root, "proc"), "chroot", root,
		"apt-get", "install", "-y", "-qq", "--no-install-recommends"}
	return private(append(install, rootfsPackages...)...)
}

// mirror is where this machine takes its own Debian from: there its other releases are, too.
func mirror() (string, error) {
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("ask apt for its mirror: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		release, uri, ok := strings.Cut(strings.TrimSpace(line), " ")
		// Updates and security of a release have names with a dash, and places of their own.
		if ok && !strings.Contains(release, "-") {
			return strings.TrimSuffix(uri, "/"), nil
		}
	}
	return "", errors.New("apt has no index of a Debian release: run apt-get update")
}

func addUsers(root, _ string) error {
	for file, lines := range map[string]string{
		"group":  "qemu:x:107:\nnonroot-user:x:1001:\n",
		"passwd": "qemu:x:107:107:user:/home/qemu:/bin/bash\nnonroot-user:x:1001:1001::/home/nonroot-user:/bin/sh\n",
	} {
		out, err := os.OpenFile(filepath.Join(root, "etc", file), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = out.WriteString(lines)
		if closing := out.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return err
		}
	}
	return ownedFolder(filepath.Join(root, "home", "qemu"))
}

func addLibvirt(root, kubeVirt string) error {
	etc, launcher := filepath.Join(root, "etc", "libvirt"), filepath.Join(kubeVirt, "cmd", "virt-launcher")
	for _, name := range []string{"qemu.conf", "virtqemud.conf"} {
		if err := copyFile(filepath.Join(launcher, name), filepath.Join(etc, name), 0o644); err != nil {
			return err
		}
	}
	// virt-launcher reads these as user qemu, Debian makes them root's own.
	readable, err := filepath.Glob(filepath.Join(etc, "*.conf"))
	if err != nil {
		return err
	}
	for _, name := range readable {
		if err := os.Chmod(name, 0o644); err != nil {
			return err
		}
	}
	if err := os.Chmod(etc, 0o755); err != nil {
		return err
	}
	if err := ownedFolder(filepath.Join(etc, "hooks")); err != nil {
		return err
	}
	hook := filepath.Join(etc, "hooks", "qemu")
	if err := copyFile(filepath.Join(launcher, "qemu"), hook, 0o755); err != nil {
		return err
	}
	if err := os.Chown(hook, qemu, qemu); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(etc, "virtlogd.conf"), nil, 0o644); err != nil {
		return err
	}
	sbin := filepath.Join(root, "usr", "sbin")
	if err := copyFile(filepath.Join(sbin, "libvirtd"), filepath.Join(sbin, "virtqemud.bin"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(sbin, "virtqemud"), []byte(virtqemud), 0o755)
}

// addFirmware gives OVMF the names that KubeVirt looks for. The Secure Boot build is left out: KubeVirt prefers it even
// for plain EFI, and Debian's needs SMM.
func addFirmware(root, _ string) error {
	firmware := filepath.Join(root, "usr", "share", "OVMF")
	if err := os.RemoveAll(filepath.Join(firmware, "OVMF_CODE.secboot.fd")); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"OVMF_CODE.fd": "OVMF_CODE_4M.fd", "OVMF_VARS.fd": "OVMF_VARS_4M.fd", "../edk2/ovmf": "../OVMF",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(firmware, name)), 0o755); err != nil {
			return err
		}
		if err := relink(target, filepath.Join(firmware, name)); err != nil {
			return err
		}
	}
	return nil
}

func addFolders(root, kubeVirt string) error {
	// virt-handler looks at /var/run through /proc/PID/root, where an absolute link would leave the root.
	run := filepath.Join(root, "var", "run")
	if err := os.RemoveAll(run); err != nil {
		return err
	}
	if err := os.Symlink("../run", run); err != nil {
		return err
	}
	for _, name := range []string{"var/lib/kubevirt-node-labeller", "var/lib/swtpm-localca", "usr/lib64/qemu-kvm"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.Chmod(filepath.Join(root, "var/lib/swtpm-localca"), 0o777); err != nil {
		return err
	}
	const labeller = "node-labeller.sh"
	from := filepath.Join(kubeVirt, "cmd", "virt-launcher", "node-labeller", labeller)
	return copyFile(from, filepath.Join(root, "usr", "bin", labeller), 0o755)
}

// dropDocs removes what no process reads; it halves the layer.
func dropDocs(root, _ string) error {
	for _, name := range []string{
		"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", policy,
		"var/cache/apt", "var/lib/apt/lists",
	} {
		if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// ownedFolder makes a folder that belongs to user qemu.
func ownedFolder(name string) error {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return err
	}
	return os.Chown(name, qemu, qemu)
}
