package csireflink

import (
	"context"
	"encoding/json"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Control is the content of the control file, JSON, read again at every call. Without a file the driver behaves.
// Methods are named as in CSI: CreateSnapshot, CreateVolumeGroupSnapshot, CreateVolume, NodeStageVolume.
type Control struct {
	// DelayMillis makes a method wait before it does its work.
	DelayMillis map[string]int `json:"delayMillis"`
	// Fail makes a method fail instead of doing its work.
	Fail map[string]Failure `json:"fail"`
	// FailAfter makes a method do its work and then fail, like an answer that was lost on its way.
	FailAfter map[string]Failure `json:"failAfter"`
	// UnreadyMillis is for how long after its cut a snapshot is not ready to use.
	UnreadyMillis int `json:"unreadyMillis"`
	// NoHold takes snapshots without holding the volumes: those of a group then differ in time.
	NoHold bool `json:"noHold"`
	// GapMillis passes between the copies of a group's volumes.
	GapMillis int `json:"gapMillis"`
	// Metadata makes snapshot metadata misbehave. GetMetadataAllocated and GetMetadataDelta can be delayed and made to
	// fail like any method.
	Metadata Metadata `json:"metadata"`
}

// Failure is an error and how often it comes, counted anew whenever the control file changes.
type Failure struct {
	// Code is a gRPC code by number, for instance 14 for Unavailable; 0 is Internal.
	Code codes.Code `json:"code"`
	// Message is the error's text.
	Message string `json:"message"`
	// Times is how many calls fail; 0 is every call.
	Times int `json:"times"`
}

// controls reads the control file and counts the failures that it has asked for.
type controls struct {
	file string
	mu   sync.Mutex
	text string
	done map[string]int
}

func (c *controls) read() Control {
	var control Control
	raw, err := os.ReadFile(c.file)
	if err != nil {
		raw = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if string(raw) != c.text {
		c.text, c.done = string(raw), map[string]int{}
	}
	if len(raw) > 0 && json.Unmarshal(raw, &control) != nil {
		return Control{}
	}
	return control
}

// around does what the control file asks for before and after a method's own work.
func (c *controls) around(ctx context.Context, method string, work func() (any, error)) (any, error) {
	control := c.read()
	if err := pause(ctx, control.DelayMillis[method]); err != nil {
		return nil, err
	}
	if err := c.failure("before "+method, control.Fail[method]); err != nil {
		return nil, err
	}
	answer, err := work()
	if err != nil {
		return nil, err
	}
	return answer, c.failure("after "+method, control.FailAfter[method])
}

func (c *controls) failure(what string, f Failure) error {
	if f == (Failure{}) {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Times > 0 && c.done[what] >= f.Times {
		return nil
	}
	c.done[what]++
	if f.Code == codes.OK {
		f.Code = codes.Internal
	}
	return status.Error(f.Code, f.Message)
}

func pause(ctx context.Context, millis int) error {
	select {
	case <-time.After(time.Duration(millis) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}
