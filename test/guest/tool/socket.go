package tool

import (
	"os"
	"strings"
)

// Listening says whether a Unix socket at path accepts connections. It asks the
// kernel (proc(5), net/unix) rather than connecting: swtpm takes the end of its
// first connection for its own end, and the socket's file is there before it
// listens.
func Listening(path string) bool {
	const flagsField, pathField, acceptsConnections = 3, 7, "00010000"
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > pathField && f[pathField] == path && f[flagsField] == acceptsConnections {
			return true
		}
	}
	return false
}
