// Package task carries what a Job is told: JSON in the environment of its pod. It is
// strict, since manager and Jobs may be of different versions for a while: a Job that
// leaves out half of what it was told is worse than none.
package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Decode reads one JSON object into config, which who names in errors. A member that
// this version does not know is an error, as is anything behind the object.
func Decode(b []byte, who string, config any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(config)
	if err == nil {
		if _, behind := d.Token(); !errors.Is(behind, io.EOF) {
			err = errors.New("there is more behind it")
		}
	}
	if err != nil {
		return fmt.Errorf("decode config of the %s: %w", who, err)
	}
	return nil
}
