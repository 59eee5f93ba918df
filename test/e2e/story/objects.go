package story

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vmstate "github.com/vmstate/vmstate/api/v1alpha1"
)

// Bucket is where the story's backups go.
type Bucket struct {
	Endpoint, Name, Prefix, Region, AccessKey, SecretKey string
	// CA is the PEM bundle to trust, and CAFile where it is from; empty for the system's.
	CA, CAFile string
}

// Store makes the Secret, the ConfigMap and the VMStateStore "main" in a namespace and waits until it is Ready.
func (r *Runner) Store(ctx context.Context, ns string, b Bucket, recipients ...string) error {
	var quoted []string
	for _, recipient := range recipients {
		quoted = append(quoted, fmt.Sprintf("%q", recipient))
	}
	ca := ""
	if b.CA != "" {
		ca = "    caBundleConfigMapRef: {name: s3-ca}\n"
	}
	manifest := fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: s3-write, namespace: %[1]s}
data: {accessKeyID: %[2]s, secretAccessKey: %[3]s}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: s3-ca, namespace: %[1]s}
binaryData: {ca.crt: %[4]s}
---
apiVersion: vmstate.io/v1alpha1
kind: VMStateStore
metadata: {name: main, namespace: %[1]s}
spec:
  s3:
    endpoint: %[5]q
    bucket: %[6]s
    prefix: %[7]q
    region: %[8]s
%[9]s    credentialsSecretRef: {name: s3-write}
  recipients: [%[10]s]
`, ns, b64(b.AccessKey), b64(b.SecretKey), b64(b.CA), b.Endpoint, b.Name, b.Prefix, b.Region, ca, strings.Join(quoted, ", "))
	if err := r.Apply(ctx, manifest); err != nil {
		return err
	}
	return r.UntilReady(ctx, 3*time.Minute, ns, "vmstatestore/main", nil)
}

// Identity makes the Secret "restore-key" that holds an age identity.
func (r *Runner) Identity(ctx context.Context, ns, identity string) error {
	return r.Apply(ctx, fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: restore-key, namespace: %s}
data: {identity: %s}
`, ns, b64(identity)))
}

// Namespace makes a namespace, once an older one of that name is gone, and waits until pods can start in it.
func (r *Runner) Namespace(ctx context.Context, ns string) error {
	if err := r.NoNamespace(ctx, ns); err != nil {
		return err
	}
	if _, err := r.K(ctx, "create", "namespace", ns); err != nil {
		return err
	}
	return Until(ctx, time.Minute, 200*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		_, err := r.K(ctx, "-n", ns, "get", "serviceaccount", "default")
		return err == nil, fmt.Sprint(err), nil
	})
}

// NoNamespace deletes a namespace with all that is in it and waits until it is gone.
func (r *Runner) NoNamespace(ctx context.Context, ns string) error {
	_, err := r.K(ctx, "delete", "namespace", ns, "--ignore-not-found", "--wait", "--timeout=300s")
	return err
}

// conditioned is the part of every kind of ours that says how it is.
type conditioned struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		ObservedGeneration int64              `json:"observedGeneration"`
		Conditions         []metav1.Condition `json:"conditions"`
		Findings           []vmstate.Finding  `json:"findings"`
	} `json:"status"`
}

// UntilReady waits for an object's Ready condition, and ends at once when it is Stalled. Each new message goes to say.
func (r *Runner) UntilReady(ctx context.Context, limit time.Duration, ns, object string, say func(string)) error {
	last := ""
	return Until(ctx, limit, 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		var o conditioned
		if err := r.Get(ctx, &o, "-n", ns, object); err != nil {
			return false, "", err
		}
		ready := apimeta.FindStatusCondition(o.Status.Conditions, vmstate.ConditionReady)
		if ready == nil {
			return false, "no Ready condition", nil
		}
		text := ready.Reason + ": " + ready.Message
		if text != last && say != nil {
			say(text)
		}
		last = text
		if apimeta.IsStatusConditionTrue(o.Status.Conditions, vmstate.ConditionStalled) {
			return false, text, fmt.Errorf("%s is stalled: %s (findings: %v)", object, text, o.Status.Findings)
		}
		current := ready.ObservedGeneration == o.Metadata.Generation
		return current && ready.Status == metav1.ConditionTrue, text, nil
	})
}

// Backup makes a VMStateBackup and waits until it is Ready.
func (r *Runner) Backup(ctx context.Context, ns, name, vm string, say func(string)) (*vmstate.VMStateBackup, error) {
	err := r.Apply(ctx, fmt.Sprintf(`apiVersion: vmstate.io/v1alpha1
kind: VMStateBackup
metadata: {name: %s, namespace: %s}
spec: {vmName: %s, storeRef: {name: main}}
`, name, ns, vm))
	if err != nil {
		return nil, err
	}
	if err := r.UntilReady(ctx, 10*time.Minute, ns, "vmstatebackup/"+name, say); err != nil {
		return nil, err
	}
	b := &vmstate.VMStateBackup{}
	return b, r.Get(ctx, b, "-n", ns, "vmstatebackup/"+name)
}

// RestoreSpec is what a story asks a restore for.
type RestoreSpec struct {
	Name, Source, Mode, Extra string
}

// Restore makes a VMStateRestore and waits until it is Ready.
func (r *Runner) Restore(ctx context.Context, ns string, s RestoreSpec, say func(string)) error {
	err := r.Apply(ctx, fmt.Sprintf(`apiVersion: vmstate.io/v1alpha1
kind: VMStateRestore
metadata: {name: %s, namespace: %s}
spec:
  source: %s
  mode: %s
  identitySecretRef: {name: restore-key}
%s`, s.Name, ns, s.Source, s.Mode, s.Extra))
	if err != nil {
		return err
	}
	return r.UntilReady(ctx, 10*time.Minute, ns, "vmstaterestore/"+s.Name, say)
}

// Left lists what vmstate made on the way and has not removed: everything with its label but the
// accounts of the stores' hourly probe and their keys, claims that a restore gave to a virtual machine or
// keeps for a while, and the snapshots of the one backup of a machine that the next one asks the storage about.
func (r *Runner) Left(ctx context.Context, ns string) (string, error) {
	kinds := "jobs,pods,serviceaccounts,rolebindings,configmaps,persistentvolumeclaims,secrets,volumesnapshots,volumegroupsnapshots,vmstatereports"
	out, err := r.K(ctx, "-n", ns, "get", kinds, "-l", vmstate.LabelManagedBy+"="+vmstate.ManagedBy, "-o", "name")
	if err != nil {
		return "", err
	}
	bases, err := r.bases(ctx, ns)
	var left []string
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		kind, name, _ := strings.Cut(line, "/")
		kept := kind == "persistentvolumeclaim" && !strings.HasPrefix(name, "vmstate-") || strings.HasSuffix(name, "-repository-keys")
		kept = kept || strings.Contains(kind, "snapshot") && slices.ContainsFunc(bases, func(uid string) bool {
			return strings.HasPrefix(name, "vmstate-"+uid+"-")
		})
		if !kept && !strings.HasSuffix(name, "-setup") && line != "" {
			left = append(left, line)
		}
	}
	return strings.Join(left, " "), err
}

// bases are the UIDs of the backups that keep snapshots on the storage for the next one: the newest of each
// machine, and no other.
func (r *Runner) bases(ctx context.Context, ns string) (uids []string, err error) {
	var list vmstate.VMStateBackupList
	if err := r.Get(ctx, &list, "-n", ns, "vmstatebackups"); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, b := range list.Items {
		if b.Status.Export != nil && b.Status.Export.Base != nil && !seen[b.Spec.VMName] {
			seen[b.Spec.VMName] = true
			uids = append(uids, string(b.UID))
		}
	}
	return uids, nil
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
