package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vmstate/vmstate/api/v1alpha1"
)

const (
	// callTimeout bounds one call.
	callTimeout = 10 * time.Second
	// thawTimeout bounds one thaw, which waits for virt-api, virt-handler and the agent.
	thawTimeout = 30 * time.Second
	// watchFor is how long one watch lasts before the object is read again: a dead
	// connection is then noticed in time.
	watchFor = 10 * time.Second
)

// api is the few calls that a witness may make, in its own namespace. It speaks
// JSON over client-go's transport: typed clients would make the image much larger.
type api struct {
	rest      rest.Interface
	namespace string
}

func newAPI(c *rest.Config, namespace string) (*api, error) {
	c = rest.CopyConfig(c)
	c.UserAgent = "vmstate-witness"
	c.QPS, c.Burst = 20, 40
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"}) // the Status of an error
	c.ContentConfig = rest.ContentConfig{
		ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON,
		NegotiatedSerializer: serializer.NewCodecFactory(s).WithoutConversion(),
	}
	client, err := rest.UnversionedRESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &api{rest: client, namespace: namespace}, nil
}

func (a *api) ours(resource string, rest ...string) []string {
	return append([]string{"/apis", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "namespaces", a.namespace, resource}, rest...)
}

// call sends r, with in as its body if it is not nil, and reads the answer into out
// if that is not nil.
func call(ctx context.Context, r *rest.Request, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return send(ctx, r, in, out)
}

func send(ctx context.Context, r *rest.Request, in, out any) error {
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		r = r.Body(body)
	}
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	body, err := answer.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, out)
}

func (a *api) backup(ctx context.Context, name string) (*v1alpha1.VMStateBackup, error) {
	b := &v1alpha1.VMStateBackup{}
	if err := call(ctx, a.rest.Get().AbsPath(a.ours("vmstatebackups", name)...), nil, b); err != nil {
		return nil, fmt.Errorf("get VMStateBackup %q: %w", name, err)
	}
	return b, nil
}

// watchBackup sends every later version of the backup, nil once it is deleted, until
// the watch ends, which is no error.
func (a *api) watchBackup(ctx context.Context, name, version string, send func(*v1alpha1.VMStateBackup)) error {
	ctx, cancel := context.WithTimeout(ctx, watchFor+callTimeout)
	defer cancel()
	stream, err := a.rest.Get().AbsPath(a.ours("vmstatebackups")...).
		Param("watch", "true").Param("fieldSelector", "metadata.name="+name).
		Param("resourceVersion", version).Param("timeoutSeconds", fmt.Sprint(int(watchFor.Seconds()))).
		Stream(ctx)
	if err != nil {
		return fmt.Errorf("watch VMStateBackup %q: %w", name, err)
	}
	defer stream.Close()
	for events := json.NewDecoder(stream); ; {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("watch VMStateBackup %q: %w", name, err)
		}
		b := &v1alpha1.VMStateBackup{}
		switch e.Type {
		case "ADDED", "MODIFIED":
			if err := json.Unmarshal(e.Object, b); err != nil {
				return fmt.Errorf("watch VMStateBackup %q: %w", name, err)
			}
			send(b)
		case "DELETED":
			send(nil)
		default:
			return fmt.Errorf("watch VMStateBackup %q: ended by the server: %s", name, e.Object)
		}
	}
}

func (a *api) report(ctx context.Context, name string) (*v1alpha1.VMStateReport, error) {
	r := &v1alpha1.VMStateReport{}
	if err := call(ctx, a.rest.Get().AbsPath(a.ours("vmstatereports", name)...), nil, r); err != nil {
		return nil, fmt.Errorf("get VMStateReport %q: %w", name, err)
	}
	return r, nil
}

// writeReport records status if nobody has written since r was read; a conflict is
// apierrors.IsConflict.
func (a *api) writeReport(ctx context.Context, r *v1alpha1.VMStateReport, status v1alpha1.VMStateReportStatus) (*v1alpha1.VMStateReport, error) {
	patch := map[string]any{"metadata": map[string]string{"resourceVersion": r.ResourceVersion}, "status": status}
	written := &v1alpha1.VMStateReport{}
	request := a.rest.Patch(types.MergePatchType).AbsPath(a.ours("vmstatereports", r.Name, "status")...)
	if err := call(ctx, request, patch, written); err != nil {
		return nil, fmt.Errorf("write VMStateReport %q: %w", r.Name, err)
	}
	return written, nil
}

func (a *api) createSecret(ctx context.Context, s *corev1.Secret) error {
	err := call(ctx, a.rest.Post().AbsPath("/api/v1/namespaces", a.namespace, "secrets"), s, nil)
	if err != nil {
		return fmt.Errorf("create Secret %q: %w", s.Name, err)
	}
	return nil
}
