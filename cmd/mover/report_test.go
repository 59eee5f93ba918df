package main

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/mover"
)

// TestProgressPace: progress that comes a thousand times a second is written every few seconds, and what is written last is not
// old; a manager writes its own status only when that has changed.
func TestProgressPace(t *testing.T) {
	s := newSite(t)
	report := s.newReport(t, v1alpha1.TaskExport, "export")
	o, err := newObjects(s.cluster.Config, s.namespace)
	if err != nil {
		t.Fatal(err)
	}
	r := newReporter(o, "export", "pod-uid")
	stop := r.writeProgress(t.Context())
	versions, last := map[string]bool{}, int64(0)
	const length = 2*progressEvery + progressEvery/2
	for begin := time.Now(); time.Since(begin) < length; time.Sleep(time.Millisecond) {
		last++
		r.progress(mover.Progress{Total: 1 << 40, Done: last})
		if last%50 != 0 {
			continue
		}
		if err := s.cluster.Client.Get(t.Context(), client.ObjectKeyFromObject(report), report); err != nil {
			t.Fatal(err)
		}
		versions[report.ResourceVersion] = true
	}
	stop()
	if n := len(versions) - 1; n < 1 || n > int(length/progressEvery) {
		t.Errorf("%d writes in %s", n, length)
	}
	if got := report.Status.Progress; got == nil || got.DoneBytes == 0 || got.DoneBytes > last {
		t.Errorf("written is %+v of %d", got, last)
	}
}
