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
	// LateMillis is how long the work of a method takes that goes on when its caller gives up: another call for the
	// same name meanwhile is Aborted, one after that finds the work done.
	LateMillis map[string]int `json:"lateMillis"`
	// HalfGroup makes the cut of a group fail when its first volume is copied.
	HalfGroup Failure `json:"halfGroup"`
	// Lies are what a method answers beside the truth: CreateSnapshot and CreateVolumeGroupSnapshot, and
	// ListSnapshots where sizes and times are concerned.
	Lies map[string]Lie `json:"lies"`
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

// Lie is what an answer is changed to. What was done stays as it was done.
type Lie struct {
	// NoHandle leaves out the ID of the snapshot or group.
	NoHandle bool `json:"noHandle"`
	// Handle is the ID that is told in place of the snapshot's or group's.
	Handle string `json:"handle"`
	// NoTime leaves out when it was cut.
	NoTime bool `json:"noTime"`
	// Size in bytes that a claim must have, in place of the volume's.
	Size *int64 `json:"size"`
	// Forget is how many of a group's members are left out.
	Forget int `json:"forget"`
	// Invent adds a member of a group, of the volume with this ID.
	Invent string `json:"invent"`
	// Repeat tells the first member's ID for every member of a group.
	Repeat bool `json:"repeat"`
}

// controls reads the control file and counts the failures that it has asked for.
type controls struct {
	file string
	mu   sync.Mutex
	text string
	done map[string]int
	// belated is the work that goes on by itself, by method and name; its channel is closed when it is done.
	belated map[string]chan struct{}
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
	if c.belated == nil {
		c.belated = map[string]chan struct{}{}
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
