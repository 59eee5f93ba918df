package restore

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// stallLimit is how long an import may go on without progress. How long it takes in all is not limited.
const stallLimit = 30 * time.Minute

// filling records how far the Job is. One that makes no progress is not given up, as all that it
// has filled would be lost: a person is told how its pod stands, and it goes on when it can.
func filling(in Observed) Decision {
	if at := progressedAt(in); at != nil {
		d := working(in, v1alpha1.ReasonFilling, "filling %d volumes", len(in.Restore.Status.Volumes))
		total, done := int64(0), int64(0)
		if p := progressOf(in.Import); p != nil {
			total, done = p.TotalBytes, p.DoneBytes
		}
		d.Status.Filling = &v1alpha1.FillProgress{TotalBytes: total, DoneBytes: done, ProgressedAt: *at}
		if total > 0 {
			d.Status.Summary.Progress = fmt.Sprintf("%d %%", min(100, done*100/total))
		}
		return d
	}
	f := in.Restore.Status.Filling
	if f == nil || in.Now.Sub(f.ProgressedAt.Time) < stallLimit {
		return working(in, v1alpha1.ReasonFilling, "filling %d volumes", len(in.Restore.Status.Volumes))
	}
	words := in.Import.Standing
	if words == "" {
		words = "nothing is known of its pod"
	}
	if r := in.Import.Report; r != nil && r.Status.Message != "" {
		words += "; it said: " + cut(r.Status.Message, 2000)
	}
	return stalled(in, v1alpha1.ReasonImportStalled,
		"the Job %q that fills the volumes has made no progress for %s (%d of %d bytes): %s; it goes on by itself once it can; delete its pod to have it tried again, or the restore to give it up; the virtual machine is untouched",
		in.Import.Name, stallLimit, f.DoneBytes, f.TotalBytes, words)
}

// progressedAt is now if the Job began or got on since that was recorded, nil otherwise. How long
// its pod waited before is no stall.
func progressedAt(in Observed) *metav1.Time {
	f, p := in.Restore.Status.Filling, progressOf(in.Import)
	began := f == nil && in.Import.Report != nil && in.Import.Report.Status.PodUID != ""
	if began || p != nil && (f == nil || p.DoneBytes != f.DoneBytes) {
		return &metav1.Time{Time: in.Now}
	}
	return nil
}

func progressOf(j *JobSeen) *v1alpha1.ReportProgress {
	if j.Report == nil {
		return nil
	}
	return j.Report.Status.Progress
}
