package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"filippo.io/age"
	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/keys"
	"github.com/vmstate/vmstate/pkg/repository/ticket"
	"github.com/vmstate/vmstate/pkg/restore"
)

// pod asks for keys as a mover does.
type pod struct {
	cluster  client.Client
	report   *v1alpha1.VMStateReport
	identity *age.HybridIdentity
	restore  string
}

// asks RESTORE DIR has both Jobs of a restore ask for the keys of the newest backup in the directory, one after the
// other. What goes wrong ends the test.
func asks(c client.Client) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 2 {
			ts.Fatalf("usage: asks RESTORE DIR")
		}
		ctx, rs := context.Background(), &v1alpha1.VMStateRestore{}
		ts.Check(c.Get(ctx, client.ObjectKey{Namespace: ts.Getenv("NS"), Name: args[0]}, rs))
		dir := ts.MkAbs(args[1])
		resolve, importing := restore.JobNames(rs)
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		ts.Defer(cancel)
		go func() {
			defer cancel()
			for i, task := range []v1alpha1.ReportTask{v1alpha1.TaskResolve, v1alpha1.TaskImport} {
				name := []string{resolve, importing}[i]
				p := &pod{cluster: c, restore: string(rs.UID)}
				p.report = &v1alpha1.VMStateReport{
					ObjectMeta: metav1.ObjectMeta{Namespace: rs.Namespace, Name: name}, Spec: v1alpha1.VMStateReportSpec{Task: task},
				}
				if err := p.work(ctx, dir); err != nil && ctx.Err() == nil {
					panic(fmt.Sprintf("the pod of %s: %v", rs.Name, err))
				}
			}
		}()
	}
}

func (p *pod) work(ctx context.Context, dir string) (err error) {
	if err := p.cluster.Create(ctx, p.report); err != nil {
		return err
	}
	if p.identity, err = age.GenerateHybridIdentity(); err != nil {
		return err
	}
	store := dirstore.New(dir)
	q, err := repository.IndexRequest(ctx, store, p.restore, p.identity.Recipient().String())
	if err != nil {
		return err
	}
	t, err := p.ask(ctx, q)
	if err != nil {
		return err
	}
	h := repository.Handed{Epochs: t.Epochs, Data: map[keys.Origin][32]byte{}}
	repo, err := repository.OpenHanded(ctx, store, h, nil)
	if err != nil {
		return err
	}
	c, err := repo.Latest(ctx, "prod", "db")
	if err != nil {
		return err
	}
	requests, err := repo.DataRequests(ctx, c, p.restore, p.identity.Recipient().String())
	if err != nil {
		return err
	}
	for _, q := range requests {
		if t, err = p.ask(ctx, q); err != nil {
			return err
		}
		maps.Copy(h.Data, t.Data)
	}
	if repo, err = repository.OpenHanded(ctx, store, h, nil); err != nil {
		return err
	}
	if _, err := repo.ReadTree(ctx, c, "persistent-state-for-db"); err != nil {
		return err
	}
	return p.say(ctx, map[string]any{"unlock": nil, "unlocked": true})
}

func (p *pod) say(ctx context.Context, status map[string]any) error {
	body, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return p.cluster.Status().Patch(ctx, p.report, client.RawPatch(types.MergePatchType, body))
}

func (p *pod) ask(ctx context.Context, q *ticket.Request) (*ticket.Ticket, error) {
	body := q.Encode()
	id := ticket.IDOf(body)
	asked := map[string]any{"id": id.String(), "request": base64.StdEncoding.EncodeToString(body)}
	if err := p.say(ctx, map[string]any{"unlock": asked}); err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		if err := p.cluster.Get(ctx, client.ObjectKeyFromObject(p.report), p.report); err != nil {
			return nil, err
		}
		if t := p.report.Spec.Ticket; t != nil && t.Request == id.String() {
			return ticket.Open(t.Sealed, p.identity, id, time.Now())
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil, errors.New("nobody has answered")
}
