package main

import (
	"context"
	"crypto/sha256"
	"time"

	"k8s.io/klog/v2"

	"github.com/vmstate/vmstate/pkg/mover"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
)

// lookEvery is how often the report is asked for a ticket.
const lookEvery = 2 * time.Second

// holder reaches whoever has an identity by way of the report: the request in its status, which this pod's account may
// write, the ticket in its spec, which it may not.
type holder struct {
	report *reporter
	// taken are the tickets that were seen already, by their digest.
	taken map[[32]byte]bool
}

var _ mover.Holder = (*holder)(nil)

func newHolder(r *reporter) *holder { return &holder{report: r, taken: map[[32]byte]bool{}} }

// Ask publishes a request and waits for a ticket that it has not returned before. An API server that cannot be
// reached is waited for.
func (h *holder) Ask(ctx context.Context, request []byte, refusal string) ([]byte, error) {
	id := ticket.IDOf(request).String()
	if len(refusal) > maxMessage {
		refusal = refusal[:maxMessage]
	}
	asked := map[string]any{"id": id, "request": request, "refused": nil} // a merge: what is said before must go
	if refusal != "" {
		asked["refused"] = refusal
	}
	published := false
	for {
		if !published {
			err := h.report.patch(ctx, map[string]any{"unlock": asked})
			published = err == nil
			if err != nil {
				klog.InfoS("Cannot ask for keys", "error", err.Error())
			}
		}
		if sealed := h.look(ctx, id); published && sealed != nil {
			return sealed, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// look returns a ticket that was not seen before; nil if there is none.
func (h *holder) look(ctx context.Context, id string) []byte {
	report, err := h.report.objects.report(ctx, h.report.name)
	if err != nil {
		klog.InfoS("Cannot look for a ticket", "error", err.Error())
		return nil
	}
	t := report.Spec.Ticket
	if t == nil || t.Request != id || h.taken[sha256.Sum256(t.Sealed)] {
		return nil
	}
	h.taken[sha256.Sum256(t.Sealed)] = true
	return t.Sealed
}

// Done says that nothing more is asked for.
func (h *holder) Done(ctx context.Context) error {
	return h.report.patch(ctx, map[string]any{"unlock": nil, "unlocked": true})
}
