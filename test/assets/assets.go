// Package assets knows where the programs are that tests and measurements start, which
// `make parts` builds.
package assets

import (
	"fmt"
	"os"
	"path/filepath"
)

// Folder is KUBEBUILDER_ASSETS if it is set, else where `make parts` puts what it builds.
func Folder() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache folder: %w", err)
	}
	return filepath.Join(dir, "vmstate", "assets"), nil
}
