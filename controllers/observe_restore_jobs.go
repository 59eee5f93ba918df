package controllers

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/document"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/restore"
)

func (r *RestoreReconciler) observeJobs(ctx context.Context, in *restore.Observed) error {
	resolve, importing := restore.JobNames(in.Restore)
	var err error
	if in.Resolve, err = r.observeJob(ctx, in, resolve); err != nil {
		return err
	}
	if in.Import, err = r.observeJob(ctx, in, importing); err != nil {
		return err
	}
	return r.observeAccounts(ctx, in)
}

// observeAccounts finds what was made for the Jobs beside them. Both Jobs run under one account.
func (r *RestoreReconciler) observeAccounts(ctx context.Context, in *restore.Observed) error {
	name := job.AccountName(in.Restore.UID, v1alpha1.TaskImport)
	kinds := map[action.Kind]schema.GroupVersionKind{
		action.KindRoleBinding:    rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		action.KindServiceAccount: corev1.SchemeGroupVersion.WithKind("ServiceAccount"),
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(kinds[kind])
		found, err := r.get(ctx, in.Restore.Namespace, name, obj)
		if err != nil {
			return err
		}
		if found && metav1.IsControlledBy(obj, in.Restore) {
			in.Accounts = append(in.Accounts, restore.Account{Kind: kind, Name: name, UID: obj.UID})
		}
	}
	return nil
}

// observeJob is nil if neither Job nor report exist. What somebody else put under their
// names is not read: making ours then fails, and says so.
func (r *RestoreReconciler) observeJob(ctx context.Context, in *restore.Observed, name string) (*restore.JobSeen, error) {
	seen, err := observeJob(ctx, r.Live, in.Restore.Namespace, name)
	if err != nil {
		return nil, err
	}
	if seen.Report != nil && !metav1.IsControlledBy(seen.Report, in.Restore) {
		seen.Report = nil
	}
	if seen.Job != nil && !metav1.IsControlledBy(seen.Job, in.Restore) {
		seen.Job = nil
	}
	if seen.Job == nil && seen.Report == nil {
		return nil, nil
	}
	out := &restore.JobSeen{Name: name, Report: seen.Report, Failed: seen.Failed, Message: seen.Message, Pending: seen.Pending, Standing: seen.Standing}
	if seen.Job != nil {
		terminating := seen.Job.Status.Terminating
		out.UID = seen.Job.UID
		out.Active = seen.Job.Status.Active > 0 || terminating != nil && *terminating > 0
	}
	return out, nil
}

// observeDocuments reads what a backup without a store keeps of its virtual machine.
func (r *RestoreReconciler) observeDocuments(ctx context.Context, in *restore.Observed) error {
	if in.Backup == nil || in.Restore.Status.From != nil {
		return nil
	}
	held := &corev1.ConfigMap{}
	name := backup.DocumentsName(in.Backup)
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: in.Backup.Namespace, Name: name}, held)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get documents %q: %w", name, err)
	}
	if data, ok := held.Data[document.FileName]; ok {
		in.Documents = []byte(data)
	}
	return nil
}
