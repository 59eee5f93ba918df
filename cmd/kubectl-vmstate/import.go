package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

const aboutImport = `Has a store listed now, and everything in it that is not known in its namespace made into VMStateBackups: also what was
deleted here before, and whatever spec.adopt says. Nothing in the store is changed.

What is not as it should be is listed, and makes the exit code 3. Where the repository's keys are elsewhere,
spec.catalogue.identitySecretRef of the store names the identity that opens the records.`

func (a *app) importCommand() *cobra.Command {
	var noWait bool
	cmd := &cobra.Command{
		Use:   "import STORE",
		Short: "Make everything that is in a store known in its namespace",
		Long:  aboutImport,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.importStore(cmd.Context(), args[0], noWait)
		},
	}
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "return once it is asked for")
	return cmd
}

// importView is what an import came to.
type importView struct {
	Namespace string `json:"namespace"`
	Store     string `json:"store"`
	// Commits in the store that can be used.
	Commits int64 `json:"commits"`
	// Adopted are backups that are known here from now on.
	Adopted []backupView `json:"adopted"`
	// Findings are what is not as it should be; the first 50.
	Findings []v1alpha1.CatalogueFinding `json:"findings"`
}

func (a *app) importStore(ctx context.Context, name string, noWait bool) error {
	c, s, err := a.openStore(ctx, name)
	if err != nil {
		return err
	}
	if why := unlistable(s); why != nil {
		return why
	}
	known, err := adopted(ctx, c, name, nil)
	if err != nil {
		return err
	}
	before, request := s.DeepCopy(), time.Now().UTC().Format(time.RFC3339Nano)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[v1alpha1.AnnotationImport] = request
	if err := c.Patch(ctx, s, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("ask store %q for an import: %w", name, err)
	}
	if noWait {
		a.hint("kubectl get vmstatestore %s -n %s -o yaml shows status.catalogue.request %s when it is done", s.Name, s.Namespace, request)
		return nil
	}
	if err := a.awaitListing(ctx, c, s, request); err != nil {
		return err
	}
	fresh, err := adopted(ctx, c, name, known)
	if err != nil {
		return err
	}
	return a.printImport(s, fresh)
}

// unlistable says why nothing would come of a listing.
func unlistable(s *v1alpha1.VMStateStore) error {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	identity := s.Spec.Catalogue != nil && s.Spec.Catalogue.IdentitySecretRef != nil
	probed := ready != nil && ready.Reason != v1alpha1.ReasonProbing
	switch {
	case probed && ready.Status == metav1.ConditionFalse && s.Status.ObservedGeneration >= s.Generation:
		return &outcome{
			kind: errFailed, err: errFailed, text: fmt.Sprintf("store %s/%s: %s: %s", s.Namespace, s.Name, ready.Reason, ready.Message),
			hint: "kubectl describe vmstatestore lists the findings",
		}
	case probed && s.Status.KeysSecretName == "" && !identity:
		return &outcome{
			kind: errFailed, err: errFailed,
			text: fmt.Sprintf("store %s/%s: the records of backups are sealed, and nothing in its namespace opens them", s.Namespace, s.Name),
			hint: "name a Secret with an age identity in spec.catalogue.identitySecretRef; config/samples/08_adopt.yaml shows how",
		}
	}
	return nil
}

// adopted are the backups that were filled from their records in a store, but for those of which.
func adopted(ctx context.Context, c *connection, store string, but []v1alpha1.VMStateBackup) ([]v1alpha1.VMStateBackup, error) {
	list := &v1alpha1.VMStateBackupList{}
	if err := c.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return nil, fmt.Errorf("list backups: %w", err)
	}
	had := map[types.UID]bool{}
	for i := range but {
		had[but[i].UID] = true
	}
	out := slices.DeleteFunc(list.Items, func(b v1alpha1.VMStateBackup) bool {
		return b.Spec.Commit == nil || b.Spec.StoreRef == nil || b.Spec.StoreRef.Name != store ||
			b.Status.CompletedAt == nil || b.Status.Failure != nil || had[b.UID]
	})
	slices.SortFunc(out, func(x, y v1alpha1.VMStateBackup) int {
		return cmp.Or(cmp.Compare(x.Spec.Commit.Key, y.Spec.Commit.Key), cmp.Compare(x.Name, y.Name))
	})
	return out, nil
}

// awaitListing looks until a listing has answered the request. One that fails is tried again in the
// cluster; nobody waits for that.
func (a *app) awaitListing(ctx context.Context, c *connection, s *v1alpha1.VMStateStore, request string) error {
	progress := newBar(a.err)
	defer progress.end()
	failures := int32(0)
	if s.Status.Catalogue != nil {
		failures = s.Status.Catalogue.Failures
	}
	for {
		listing := s.Status.Catalogue
		why := unlistable(s)
		switch {
		case listing != nil && listing.Request == request:
			return nil
		case why != nil:
			return why
		case listing != nil && listing.Failures > failures:
			return notListed(s)
		}
		progress.show(readingOf(s))
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("stopped waiting; the import goes on in the cluster"), ctx.Err())
		case <-time.After(pollInterval):
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return fmt.Errorf("get store %q: %w", s.Name, err)
		}
	}
}

func notListed(s *v1alpha1.VMStateStore) error {
	text := fmt.Sprintf("store %s/%s could not be listed, and is tried again", s.Namespace, s.Name)
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionCatalogued); c != nil {
		text = fmt.Sprintf("store %s/%s: %s: %s", s.Namespace, s.Name, c.Reason, c.Message)
	}
	return &outcome{kind: errFailed, err: errFailed, text: text, hint: "the import goes on in the cluster; condition Catalogued of the store says how it stands"}
}

// readingOf is how far a listing is.
func readingOf(s *v1alpha1.VMStateStore) reading {
	switch c := s.Status.Catalogue; {
	case c != nil && c.Pass != nil:
		return reading{step: "Listing", extra: fmt.Sprintf("%d records", c.Pass.Commits)}
	case c != nil && c.Failures > 0 && c.NextAt != nil:
		return reading{step: "Waiting", extra: "the last try failed; the next one is due at " + stamp(c.NextAt.Time)}
	default:
		return reading{step: "Waiting"}
	}
}

func (a *app) printImport(s *v1alpha1.VMStateStore, fresh []v1alpha1.VMStateBackup) error {
	found := s.Status.Catalogue
	v := importView{
		Namespace: s.Namespace, Store: s.Name, Commits: found.Commits, Adopted: []backupView{}, Findings: append([]v1alpha1.CatalogueFinding{}, found.Findings...),
	}
	for i := range fresh {
		v.Adopted = append(v.Adopted, viewOf(&fresh[i]))
	}
	if a.format == formatJSON {
		if err := a.printJSON(v); err != nil {
			return err
		}
	} else if err := a.printImported(v); err != nil {
		return err
	}
	a.note("store %s/%s: %d backups in it can be used, %d of them are known here from now on", v.Namespace, v.Store, v.Commits, len(v.Adopted))
	if len(v.Findings) == 0 {
		return nil
	}
	kind := errFailed
	if slices.ContainsFunc(v.Findings, func(f v1alpha1.CatalogueFinding) bool { return f.Kind != v1alpha1.FindingNameTaken }) {
		kind = errDamaged
	}
	text := fmt.Sprintf("store %s/%s is not as it should be", s.Namespace, s.Name)
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionCatalogued); c != nil && c.Status == metav1.ConditionFalse {
		text += ": " + c.Message
	}
	return &outcome{kind: kind, err: kind, text: text}
}

func (a *app) printImported(v importView) error {
	if len(v.Adopted) > 0 {
		if err := a.printViews(v.Adopted, false); err != nil {
			return err
		}
	}
	if len(v.Findings) == 0 {
		return nil
	}
	rows := [][]string{{"FINDING", "KEY", "BACKUP", "MESSAGE"}}
	for _, f := range v.Findings {
		rows = append(rows, []string{string(f.Kind), f.Key, orDash(f.BackupName), f.Message})
	}
	table(a.out, "", rows)
	return nil
}
