package firmware

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// keptXattr tells attributes of the file from those of the node and its policies.
func keptXattr(name string) bool {
	return strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "system.posix_acl_")
}

// readXattrs returns the kept attributes, nil if there are none or the file
// system has no attributes.
func readXattrs(f *os.File) (map[string][]byte, error) {
	fd := int(f.Fd())
	list := make([]byte, 64<<10)
	n, err := unix.Flistxattr(fd, list)
	if errors.Is(err, unix.ENOTSUP) || (err == nil && n == 0) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var attrs map[string][]byte
	for name := range bytes.SplitSeq(bytes.TrimRight(list[:n], "\x00"), []byte{0}) {
		if !keptXattr(string(name)) {
			continue
		}
		value := make([]byte, 64<<10)
		size, err := unix.Fgetxattr(fd, string(name), value)
		if err != nil {
			return nil, fmt.Errorf("attribute %q: %w", name, err)
		}
		if attrs == nil {
			attrs = map[string][]byte{}
		}
		attrs[string(name)] = value[:size:size]
	}
	return attrs, nil
}

func writeXattrs(f *os.File, attrs map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		if !keptXattr(name) {
			return fmt.Errorf("attribute %q is not one that is restored", name)
		}
		if err := unix.Fsetxattr(int(f.Fd()), name, attrs[name], 0); err != nil {
			return fmt.Errorf("attribute %q: %w", name, err)
		}
	}
	return nil
}
