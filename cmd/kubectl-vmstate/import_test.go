package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

// lists STORE STATUS [BACKUP] plays the manager once somebody asks for an import: it shows a listing
// that answers somebody else for a while, makes the backup, and then writes the status, whose
// request it fills in if the status has one.
func lists(c client.Client) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) < 2 || len(args) > 3 {
			ts.Fatalf("usage: lists STORE STATUS [BACKUP]")
		}
		l := &lister{cluster: c, key: client.ObjectKey{Namespace: ts.Getenv("NS"), Name: args[0]}}
		ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &l.status))
		if len(args) == 3 {
			l.backup = &v1alpha1.VMStateBackup{}
			ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[2])), l.backup))
			l.backup.Namespace = l.key.Namespace
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		ts.Defer(cancel)
		before := &v1alpha1.VMStateStore{}
		ts.Check(c.Get(ctx, l.key, before))
		go func() {
			defer cancel()
			if err := l.run(ctx, before.Annotations[v1alpha1.AnnotationImport]); err != nil && ctx.Err() == nil {
				panic(fmt.Sprintf("the listing of %s: %v", l.key, err))
			}
		}()
	}
}

type lister struct {
	cluster client.Client
	key     client.ObjectKey
	status  v1alpha1.VMStateStoreStatus
	backup  *v1alpha1.VMStateBackup
}

func (l *lister) run(ctx context.Context, before string) error {
	s := &v1alpha1.VMStateStore{}
	for s.Name == "" || s.Annotations[v1alpha1.AnnotationImport] == before {
		if err := errors.Join(pause(ctx, 50*time.Millisecond), l.cluster.Get(ctx, l.key, s)); err != nil {
			return err
		}
	}
	s.Status.Catalogue = &v1alpha1.CatalogueStatus{Request: "another", Pass: &v1alpha1.CataloguePass{Scope: v1alpha1.ScopeAll, Commits: 400}}
	if err := errors.Join(l.cluster.Status().Update(ctx, s), pause(ctx, 3*pollInterval/2)); err != nil {
		return err
	}
	if l.backup != nil {
		filled := l.backup.DeepCopy()
		if err := l.cluster.Create(ctx, filled); err != nil {
			return err
		}
		filled.Status = l.backup.Status
		if err := l.cluster.Status().Update(ctx, filled); err != nil {
			return err
		}
	}
	s.Status.Catalogue, s.Status.Conditions = l.status.Catalogue, l.status.Conditions
	if s.Status.Catalogue.Request != "" {
		s.Status.Catalogue.Request = s.Annotations[v1alpha1.AnnotationImport]
	}
	return l.cluster.Status().Update(ctx, s)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
