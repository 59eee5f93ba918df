package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Dir is the folder of one node: its state, logs and sockets. It must not be below /run, /sys or /proc, which the node
// has of its own.
type Dir string

// Path joins names to the folder.
func (d Dir) Path(names ...string) string {
	return filepath.Join(append([]string{string(d)}, names...)...)
}

// Store is where the node, and only the node, sees the file system of the CSI driver.
func (d Dir) Store() string { return d.Path("store") }

// Log is the log file of a service.
func (d Dir) Log(service string) string { return d.Path("logs", service+".log") }

func (d Dir) storeImage() string  { return d.Path("store.xfs") }
func (d Dir) pidFile() string     { return d.Path("init.json") }
func (d Dir) socket() string      { return d.Path("init.sock") }
func (d Dir) foldersFile() string { return d.Path("folders.json") }

// process names a process so that a number that was given out again is not taken for it.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks since the machine started
}

// PID is the node's init as the host sees it, or 0 if the node is not running.
func (d Dir) PID() int {
	raw, err := os.ReadFile(d.pidFile())
	if err != nil {
		return 0
	}
	var p process
	if json.Unmarshal(raw, &p) != nil || p.PID == 0 {
		return 0
	}
	start, err := startOf(p.PID)
	if err != nil || start != p.Start {
		return 0
	}
	return p.PID
}

func (d Dir) savePID(pid int) error {
	start, err := startOf(pid)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(process{PID: pid, Start: start})
	if err != nil {
		return err
	}
	return os.WriteFile(d.pidFile(), raw, 0o644)
}

// startOf is the start time of a process that runs; a zombie does not.
func startOf(pid int) (string, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	// The second field is the name in parentheses and may hold anything.
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("unexpected stat of process %d", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", syscall.ESRCH
	}
	return fields[19], nil
}

// makeFolders makes the folders that the node mounts on and that the host lacks, and writes down which.
func (d Dir) makeFolders(names []string) error {
	var made []string
	for _, name := range names {
		for _, missing := range missingOf(name) {
			if err := os.Mkdir(missing, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
			made = append(made, missing)
		}
	}
	if made == nil {
		return nil
	}
	raw, err := json.Marshal(made)
	if err != nil {
		return err
	}
	return os.WriteFile(d.foldersFile(), raw, 0o644)
}

// dropFolders removes those that makeFolders made, if they are empty.
func (d Dir) dropFolders() {
	raw, err := os.ReadFile(d.foldersFile())
	if err != nil {
		return
	}
	var made []string
	if json.Unmarshal(raw, &made) != nil {
		return
	}
	for i := len(made) - 1; i >= 0; i-- {
		_ = os.Remove(made[i]) // not empty: somebody else uses it by now
	}
}

// missingOf lists the absent part of a path, outermost first.
func missingOf(name string) []string {
	var missing []string
	for name != "/" {
		if _, err := os.Stat(name); err == nil {
			break
		}
		missing = append([]string{name}, missing...)
		name = filepath.Dir(name)
	}
	return missing
}
