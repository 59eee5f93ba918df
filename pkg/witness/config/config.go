// Package config is what a witness is told, as JSON in the environment of its Job.
//
// It is apart from the witness so that who plans the Job need not import what reads
// firmware state. It holds no secret.
package config

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vmstate/vmstate/pkg/task"
)

// SecretKey is the key in each Secret of a witness that holds one chunk of the state
// (firmware.Unpack); where such Secrets are mounted, the name of the file.
const SecretKey = "chunk"

// Mode says whether the virtual machine runs during the cut.
type Mode string

const (
	// Running reads before and after the cut, and guards a freeze in between.
	Running Mode = "Running"
	// Offline reads once: nothing writes the state of a machine that does not run,
	// and that it did not run is the manager's to see.
	Offline Mode = "Offline"
)

// Machine is what its firmware state depends on.
type Machine struct {
	VMName string `json:"vmName"`
	// FirmwareUUID as the guest sees it; it names the TPM's directory.
	FirmwareUUID  string `json:"firmwareUUID"`
	PersistentTPM bool   `json:"persistentTPM"`
	PersistentEFI bool   `json:"persistentEFI"`
}

// Config is the task of one witness: one attempt of one backup.
type Config struct {
	// BackupName and BackupUID of the VMStateBackup, in the namespace of the pod. A
	// backup of that name with another UID is not ours.
	BackupName string `json:"backupName"`
	BackupUID  string `json:"backupUID"`
	// Attempt is the number in status.attempts, from 1.
	Attempt int32   `json:"attempt"`
	Mode    Mode    `json:"mode"`
	Machine Machine `json:"machine"`
	// StateDir is where the claim of the firmware state is mounted; empty if there is none, and the
	// witness is there to guard a fence.
	StateDir string `json:"stateDir,omitempty"`
	// Fence says that the guest is paused for the cut, and its state is read then.
	Fence bool `json:"fence,omitempty"`
}

// Encode returns c for the environment of a Job.
func (c Config) Encode() ([]byte, error) {
	return json.Marshal(c)
}

// Decode reads what Encode wrote, strictly (package task). What is missing is an error.
func Decode(b []byte) (Config, error) {
	var c Config
	if err := task.Decode(b, "witness", &c); err != nil {
		return Config{}, err
	}
	if err := c.validate(); err != nil {
		return Config{}, fmt.Errorf("config of the witness: %w", err)
	}
	return c, nil
}

func (c Config) validate() error {
	switch {
	case c.BackupName == "" || c.BackupUID == "" || c.Attempt < 1:
		return errors.New("it names no attempt of a backup")
	case c.Mode != Running && c.Mode != Offline:
		return fmt.Errorf("unknown mode %q", c.Mode)
	case c.Fence && c.Mode != Running:
		return errors.New("a fence around a machine that does not run")
	case c.Machine.VMName == "" || c.StateDir == "" && !c.Fence:
		return errors.New("it names no virtual machine or no folder of its state")
	case c.Machine.PersistentTPM && c.Machine.FirmwareUUID == "":
		return errors.New("a persistent TPM without a firmware UUID")
	}
	return nil
}
