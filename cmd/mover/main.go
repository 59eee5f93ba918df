// Command mover is what vmstate's Jobs run where data moves: mover setup, export,
// resolve, import, keepstate, catalogue, maintain and verify. It is told its task as JSON in the environment
// (package pkg/mover/config), finds credentials, keys, identities and volumes mounted
// (package pkg/job), and writes what it did into the VMStateReport of its Job.
//
// It ends with 0 if the task is done, with 2 if another attempt cannot help (the
// report says why, as its outcome; or what it was told is wrong), with 1 otherwise:
// the Job may try again.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

const (
	exitDone  = 0
	exitRetry = 1
	exitFinal = job.ExitFinal
)

// memoryLimit keeps the collector well inside the container's limit (package job).
const memoryLimit = 176 << 20

func main() {
	debug.SetMemoryLimit(memoryLimit)
	p, err := newProgram(os.Args[1:], os.Getenv)
	if err != nil {
		klog.ErrorS(err, "Cannot start")
		klog.Flush()
		os.Exit(exitFinal) // what it is told will be the same at the next try
	}
	os.Exit(p.serve())
}

// stopWithin is what an export has to make what it has sent findable after it was told to stop: a part of the 30 seconds that
// a pod has.
const stopWithin = 20 * time.Second

// serve runs until the task is done or the pod is told to end: its node is drained, or it was deleted. An export then ends by
// itself, in time; all others at once.
func (p *program) serve() int {
	told, forget := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer forget()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.env.Stop = told.Done()
	go func() {
		<-told.Done()
		if p.task == "export" {
			select {
			case <-ctx.Done():
			case <-time.After(stopWithin):
			}
		}
		cancel()
	}()
	return p.run(ctx)
}

// program is one run of one task.
type program struct {
	task    string
	do      func(context.Context, *program) (v1alpha1.VMStateReportStatus, error)
	config  config.Config
	env     mover.Env
	report  *reporter
	objects *objects
	notes   []string
}

var tasks = map[string]func(context.Context, *program) (v1alpha1.VMStateReportStatus, error){
	"setup":     setup,
	"export":    export,
	"resolve":   resolve,
	"import":    importVolumes,
	"keepstate": keepState,
	"catalogue": catalogue,
	"maintain":  maintain,
	"verify":    verify,
}

func newProgram(args []string, getenv func(string) string) (*program, error) {
	if len(args) != 1 || tasks[args[0]] == nil {
		return nil, errors.New("usage: mover setup|export|resolve|import|keepstate|catalogue|maintain|verify")
	}
	cluster, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	return wire(args[0], cluster, getenv, mountPaths())
}

// wire puts the parts together, for the pod as for its tests.
func wire(task string, cluster *rest.Config, getenv func(string) string, paths mover.Paths) (*program, error) {
	c, err := config.Decode([]byte(getenv(job.EnvConfig)))
	if err != nil {
		return nil, err
	}
	objects, err := newObjects(cluster, getenv(job.EnvNamespace))
	if err != nil {
		return nil, err
	}
	p := &program{
		task: task, do: tasks[task], config: c, objects: objects,
		env: mover.Env{Paths: paths, DocumentsVolume: document.VolumeName},
	}
	p.report = newReporter(objects, getenv(job.EnvReport), getenv(job.EnvPodUID))
	p.env.Progress, p.env.Holder = p.report.progress, newHolder(p.report)
	p.env.Note = p.note
	return p, nil
}

// maxNotes is what a report has room for.
const maxNotes = 20

// note keeps what is said on the way for the report.
func (p *program) note(format string, args ...any) {
	text := shortened(fmt.Sprintf(format, args...))
	klog.InfoS("Going on", "note", text)
	if len(p.notes) < maxNotes {
		p.notes = append(p.notes, text)
	}
}

func mountPaths() mover.Paths {
	return mover.Paths{
		Credentials: job.PathCredentials, CA: job.PathCA, RepositoryKeys: job.PathRepositoryKeys, PreviousKeys: job.PathPreviousKeys, MaintenanceKey: job.PathMaintenanceKey,
		Identities: job.PathIdentities, State: job.PathState, Spec: job.PathSpec,
		Volumes: job.PathVolumes, Devices: job.PathDevices, Tokens: job.PathTokens,
		CustomerKey: job.PathCustomerKey, WebIdentity: job.PathWebIdentity,
	}
}

// run does the task, unless an earlier pod of the Job has ended it, and reports.
func (p *program) run(ctx context.Context) int {
	ended, err := p.report.begin(ctx)
	if err != nil {
		klog.ErrorS(err, "Cannot write the report")
		return exitRetry
	}
	if ended != "" {
		return exitOf(ended)
	}
	klog.InfoS("Starting task", "task", p.task)
	stopProgress := p.report.writeProgress(ctx)
	status, err := p.do(ctx, p)
	stopProgress()
	conclude(&status, p.task, err)
	if err != nil && (ctx.Err() != nil || errors.Is(err, repository.ErrStopped)) {
		klog.InfoS("Told to stop before the task was done", "task", p.task, "error", err.Error())
		p.report.stopped(ctx)
		return exitRetry // not a finding about the task
	}
	if err := p.report.finish(ctx, status); err != nil {
		klog.ErrorS(err, "Cannot write the result")
		return exitRetry
	}
	klog.InfoS("Ending task", "task", p.task, "outcome", status.Outcome, "reason", status.Reason, "message", status.Message)
	return exitOf(status.Outcome)
}

func exitOf(outcome v1alpha1.ReportOutcome) int {
	switch outcome {
	case v1alpha1.OutcomeSucceeded:
		return exitDone
	case v1alpha1.OutcomeFailed:
		return exitFinal
	default:
		return exitRetry
	}
}
