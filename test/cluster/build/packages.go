package build

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// packages are the Debian packages that building and running the cluster takes, besides what every Debian has.
var packages = []string{
	"containernetworking-plugins", "runc", "nftables", "conntrack", "xfsprogs", "e2fsprogs", "kmod", "iproute2", "util-linux",
	"debootstrap", "libvirt-dev", "gcc", "libc6-dev", "pkg-config",
}

// InstallPackages installs those of the packages that are missing, which takes root, and does nothing if none is.
func (b *Builder) InstallPackages() error {
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	apt := func(args ...string) error {
		c := exec.Command("apt-get", args...)
		c.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return run(c)
	}
	if err := b.timed("Debian's package lists", func() error { return apt("update", "-qq") }); err != nil {
		return err
	}
	label := fmt.Sprintf("%d packages: %s", len(missing), strings.Join(missing, " "))
	return b.timed(label, func() error {
		return apt(append([]string{"install", "-y", "-qq", "--no-install-recommends"}, missing...)...)
	})
}

func missingPackages() []string {
	var missing []string
	for _, name := range packages {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${db:Status-Status}", name).Output()
		if err != nil || string(out) != "installed" {
			missing = append(missing, name)
		}
	}
	return missing
}
