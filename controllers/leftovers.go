package controllers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/action"
	"github.com/vmstate/vmstate/pkg/backup"
	"github.com/vmstate/vmstate/pkg/metrics"
)

// leftoverPause is between two looks for what is left over.
const leftoverPause = time.Hour

// Leftovers looks, every hour, for what was made for backups that are gone and takes room on the storage: it tells of it,
// and removes nothing.
type Leftovers struct {
	client.Client
	// Live reads past the cache, which does not hold these.
	Live   client.Reader
	Events events.EventRecorder
	// Metrics may be nil.
	Metrics *metrics.Metrics
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// NeedLeaderElection: one manager's word is enough.
func (*Leftovers) NeedLeaderElection() bool { return true }

// Start looks until ctx ends.
func (l *Leftovers) Start(ctx context.Context) error {
	for {
		if err := l.look(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "Looking for what is left over")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(leftoverPause):
		}
	}
}

// leftoverKinds take room on the storage; the rest of what is made for a backup costs nothing.
var leftoverKinds = []action.Kind{action.KindVolumeSnapshot, action.KindVolumeGroupSnapshot, action.KindClaim}

// look lists first what may be left over and then the owners: one that is made meanwhile is seen.
func (l *Leftovers) look(ctx context.Context) error {
	e := executor{client: l.Client}
	var found []metav1.PartialObjectMetadata
	for _, kind := range leftoverKinds {
		gvk, err := e.kindOf(kind)
		if meta.IsNoMatchError(err) {
			continue
		}
		if err != nil {
			return err
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(listKind(gvk))
		err = l.Live.List(ctx, list, client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedBy}, client.HasLabels{v1alpha1.LabelOwnerUID})
		if err != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("list objects of kind %s: %w", kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(gvk)
		}
		found = append(found, list.Items...)
	}
	owners, err := l.owners(ctx)
	if err != nil {
		return err
	}
	l.tell(ctx, found, owners)
	return nil
}

// owners are the UIDs of all that things are made for.
func (l *Leftovers) owners(ctx context.Context) (map[types.UID]bool, error) {
	out := map[types.UID]bool{}
	for _, list := range []client.ObjectList{&v1alpha1.VMStateBackupList{}, &v1alpha1.VMStateRestoreList{}, &v1alpha1.VMStateStoreList{}} {
		if err := l.Live.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list owners: %w", err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			accessor, err := meta.Accessor(o)
			if err == nil {
				out[accessor.GetUID()] = true
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list owners: %w", err)
		}
	}
	return out, nil
}

func (l *Leftovers) tell(ctx context.Context, found []metav1.PartialObjectMetadata, owners map[types.UID]bool) {
	now := time.Now()
	if l.Now != nil {
		now = l.Now()
	}
	count := map[metrics.Leftover]int{}
	for i := range found {
		o := &found[i]
		if !backup.Leftover(o, owners, now) {
			continue
		}
		count[metrics.Leftover{Namespace: o.Namespace, Kind: o.Kind}]++
		ctrl.LoggerFrom(ctx).Info("Found what is left of a backup that is gone", "kind", o.Kind, "object", klog.KObj(o))
		note(l.Events, o, remark{corev1.EventTypeWarning, "LeftOver", "Scan", "this was made for a backup that was deleted with --cascade=orphan, and nothing removes it: " +
			"delete it if nobody needs it"})
	}
	l.Metrics.Leftovers(count)
}
