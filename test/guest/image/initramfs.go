package image

import (
	"bytes"
	"fmt"
	"os"
	"strings"
)

// Modes of cpio entries: type and permissions, as in stat(2).
const (
	modeDir     = 0o040755
	modeFile    = 0o100644
	modeProgram = 0o100755
	modeConsole = 0o020600

	consoleMajor, consoleMinor = 5, 1
)

// writeInitramfs writes an uncompressed initramfs: under emulation the firmware's
// reading is cheaper than the kernel's unpacking.
func writeInitramfs(out, initBinary string, modules []module) error {
	var c cpio
	for _, d := range []string{"dev", "proc", "sys", "data", "modules"} {
		c.add(entry{name: d, mode: modeDir})
	}
	c.add(entry{name: "dev/console", mode: modeConsole, major: consoleMajor, minor: consoleMinor})
	program, err := os.ReadFile(initBinary)
	if err != nil {
		return err
	}
	c.add(entry{name: "init", mode: modeProgram, data: program})
	var order strings.Builder
	for _, m := range modules {
		b, err := os.ReadFile(m.path)
		if err != nil {
			return err
		}
		c.add(entry{name: "modules/" + m.name + ".ko", mode: modeFile, data: b})
		order.WriteString(m.name + ".ko\n")
	}
	c.add(entry{name: "modules/order", mode: modeFile, data: []byte(order.String())})
	return os.WriteFile(out, c.finish(), 0o644)
}

// entry is one file of a cpio archive.
type entry struct {
	name         string
	mode         int
	data         []byte
	major, minor int
}

// cpio writes the format "newc", the one that the kernel unpacks.
type cpio struct {
	buf   bytes.Buffer
	inode int
}

func (c *cpio) add(e entry) {
	const uid, gid, links, mtime, devMajor, devMinor, check = 0, 0, 1, 0, 0, 0, 0
	c.inode++
	c.buf.WriteString("070701")
	for _, field := range []int{c.inode, e.mode, uid, gid, links, mtime, len(e.data),
		devMajor, devMinor, e.major, e.minor, len(e.name) + 1, check} {
		fmt.Fprintf(&c.buf, "%08x", field)
	}
	c.buf.WriteString(e.name + "\x00")
	c.align()
	c.buf.Write(e.data)
	c.align()
}

func (c *cpio) finish() []byte {
	c.add(entry{name: "TRAILER!!!"})
	return c.buf.Bytes()
}

func (c *cpio) align() {
	for c.buf.Len()%4 != 0 {
		c.buf.WriteByte(0)
	}
}
