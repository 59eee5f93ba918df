package mover

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/mover/config"
)

// chunkPattern matches the files that KeepState writes. The state is kept packed: a
// mounted volume may have owners and modes changed by the kubelet (fsGroup), and they
// are part of the state.
const chunkPattern = "state-*.vmsfwa"

// KeepState copies the captured state into a claim and reads it back.
func KeepState(e Env, c config.KeepState) error {
	_, chunks, err := capturedState(e.Paths.State, c.Digest)
	if err != nil {
		return err
	}
	slices.SortFunc(chunks, bytes.Compare) // a chunk begins with its number
	dir := filepath.Join(e.Paths.Volumes, c.Volume)
	if err := removeKept(dir); err != nil {
		return fmt.Errorf("keep the state in volume %q: %w", c.Volume, err)
	}
	for i, chunk := range chunks {
		if err := writeFile(filepath.Join(dir, fmt.Sprintf("state-%03d.vmsfwa", i)), chunk); err != nil {
			return fmt.Errorf("keep the state in volume %q: %w", c.Volume, err)
		}
	}
	_, err = keptState(dir, c.Digest)
	return err
}

// removeKept removes what an earlier try has written, which need not be all.
func removeKept(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, chunkPattern))
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// keptState reads what KeepState wrote.
func keptState(dir, digest string) (firmware.Tree, error) {
	names, err := filepath.Glob(filepath.Join(dir, chunkPattern))
	if err != nil {
		return firmware.Tree{}, err
	}
	if len(names) == 0 {
		return firmware.Tree{}, fmt.Errorf("kept state: %w: %q holds none", ErrMount, dir)
	}
	var chunks [][]byte
	for _, name := range names {
		chunk, err := os.ReadFile(name)
		if err != nil {
			return firmware.Tree{}, fmt.Errorf("kept state: %w", err)
		}
		chunks = append(chunks, chunk)
	}
	return unpack(chunks, digest)
}
