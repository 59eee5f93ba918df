package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/firmware"
	"github.com/vmstate/vmstate/pkg/witness"
	"github.com/vmstate/vmstate/pkg/witness/config"
)

const (
	// settleFor bounds how long a state that is unusable or still changing is read
	// again before that is its answer: a guest that writes leaves both for moments.
	settleFor = 3 * time.Second
	// settlePause is between two such tries.
	settlePause = 100 * time.Millisecond
	// maxSets bounds the Secrets that a state which keeps changing leaves behind.
	maxSets = 8
	// maxState bounds what is read, for the memory of the pod (128 MiB). The largest
	// known state is a 64 MiB flash of arm64, most of it empty.
	maxState = 80 << 20
)

// capture is a state on its way into Secrets.
type capture struct {
	reading  firmware.Reading
	digest   string
	bytes    int64
	facts    firmware.Facts
	warnings []string
	set      int
	chunks   [][]byte
	secrets  []string // those of the first chunks, which exist
}

// refusal is an answer for the report, not an error of ours.
type refusal struct{ reason, message string }

func (e refusal) Error() string { return e.reason + ": " + e.message }

// readFirst captures the state, makes it durable, and records a reading that equals
// what was captured. once records it as the second reading too.
func (r *runner) readFirst(ctx context.Context, step witness.Step) error {
	err := r.tryFirst(ctx, step)
	if no, ok := errors.AsType[refusal](err); ok {
		return r.fail(ctx, no.reason, no.message)
	}
	return err
}

func (r *runner) tryFirst(ctx context.Context, step witness.Step) error {
	if step == witness.StepReadFirst {
		if err := r.checkRight(ctx, unfreeze); err != nil {
			return err
		}
	}
	for until := time.Now().Add(settleFor); ; sleep(ctx, settlePause) {
		recorded, err := r.captureOnce(ctx, step)
		if err != nil && (!unsettled(err) || time.Now().After(until) || ctx.Err() != nil) {
			return err
		}
		if err == nil {
			return r.recordFirst(ctx, step, recorded)
		}
	}
}

// unsettled says that the next try may well succeed.
func unsettled(err error) bool {
	no, ok := errors.AsType[refusal](err)
	return ok && (no.reason == v1alpha1.ReasonStateChanged || no.reason == v1alpha1.ReasonStateDamaged)
}

// checkRight refuses a witness whose dead man's switch would not work.
func (r *runner) checkRight(ctx context.Context, right string) error {
	may, err := r.api.may(ctx, right, r.task.Machine.VMName)
	if err != nil {
		return err
	}
	if !may {
		return refusal{v1alpha1.ReasonWitnessFailed, "the witness may not " + right + " the guest; bind the ClusterRole vmstate-witness to its service account"}
	}
	return nil
}

// captureOnce puts the state into Secrets, unless the last capture is still it, and
// returns a reading that equals the capture. Only the first reading before a pause need
// not: it shows that the state can be read and carried out, and the one that counts follows.
func (r *runner) captureOnce(ctx context.Context, step witness.Step) (v1alpha1.WitnessReading, error) {
	none := v1alpha1.WitnessReading{}
	if err := r.capture(ctx); err != nil {
		return none, err
	}
	if step != witness.StepReadFenced { // no snapshot is of it, and a paused guest waits
		if err := firmware.Sync(r.task.StateDir); err != nil {
			return none, err
		}
	}
	reading, recorded, err := r.look(ctx)
	if err != nil {
		return none, err
	}
	counts := step != witness.StepReadFirst || !r.task.Fence
	if changes := r.captured.reading.Compare(reading); counts && len(changes) > 0 {
		return none, refusal{v1alpha1.ReasonStateChanged, fmt.Sprintf("the firmware state keeps changing: %v", changes)}
	}
	return recorded, nil
}

// capture reads the state and puts it into Secrets, as far as it is not there yet.
func (r *runner) capture(ctx context.Context) error {
	s, err := firmware.Read(ctx, r.task.StateDir, firmware.Limits{MaxBytes: maxState})
	if err != nil {
		return refuse(ctx, err)
	}
	if r.captured == nil || r.captured.reading.Digest() != s.Reading.Digest() {
		if err := r.prepare(s); err != nil {
			return err
		}
	}
	return r.carryOut(ctx)
}

// look makes one reading.
func (r *runner) look(ctx context.Context) (firmware.Reading, v1alpha1.WitnessReading, error) {
	started := time.Now()
	reading, err := firmware.Look(ctx, r.task.StateDir, firmware.Limits{MaxBytes: maxState})
	w := v1alpha1.WitnessReading{Digest: reading.Digest(), StartedAt: *microTime(started), EndedAt: *microTime(time.Now())}
	return reading, w, refuse(ctx, err)
}

// refuse turns what is wrong with the volume into an answer for the report.
func refuse(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, firmware.ErrUnsettled):
		return refusal{v1alpha1.ReasonStateChanged, err.Error()}
	case errors.Is(err, firmware.ErrTooLarge):
		return refusal{v1alpha1.ReasonStateUnsupported, err.Error()}
	default:
		return refusal{v1alpha1.ReasonWitnessFailed, err.Error()}
	}
}

func (r *runner) expectation() firmware.Expectation {
	kept := func(persistent bool) firmware.Persistence {
		if persistent {
			return firmware.Persistent
		}
		return firmware.Volatile
	}
	m := r.task.Machine
	return firmware.Expectation{VMName: m.VMName, FirmwareUUID: m.FirmwareUUID, TPM: kept(m.PersistentTPM), EFI: kept(m.PersistentEFI)}
}

// prepare checks and packs the state that was read, for Secrets of new names. Those
// of an earlier set stay unused and go with the report that owns them.
func (r *runner) prepare(s firmware.Snapshot) error {
	facts, findings := firmware.Check(s.Tree, r.expectation())
	if err := firmware.Unusable(findings); err != nil {
		return refusal{v1alpha1.ReasonStateDamaged, err.Error()}
	}
	if r.sets == maxSets {
		return refusal{v1alpha1.ReasonStateChanged, "the firmware state changes faster than it can be carried out"}
	}
	chunks, err := firmware.Pack(s.Tree)
	if err != nil {
		return refusal{v1alpha1.ReasonStateUnsupported, err.Error()}
	}
	r.sets++
	r.captured = &capture{
		reading: s.Reading, digest: s.Tree.Digest(), bytes: s.Tree.Bytes(), facts: facts, set: r.sets, chunks: chunks,
	}
	for _, f := range findings { // no error among them
		r.captured.warnings = append(r.captured.warnings, f.Message)
	}
	return nil
}

// carryOut creates the Secrets of the capture that are still missing.
func (r *runner) carryOut(ctx context.Context) error {
	c := r.captured
	for i := len(c.secrets); i < len(c.chunks); i++ {
		secret := r.secret(fmt.Sprintf("%s-%s-%d-%d", r.report.Name, r.nonce, c.set, i), c.chunks[i])
		klog.InfoS("Creating a Secret with firmware state", "Secret", klog.KObj(secret), "bytes", len(c.chunks[i]))
		// The name is of this process alone: one that exists was made by a try of
		// ours whose answer was lost.
		if err := r.api.createSecret(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		c.secrets = append(c.secrets, secret.Name)
	}
	return nil
}

// secret holds one chunk and goes with the report.
func (r *runner) secret(name string, chunk []byte) *corev1.Secret {
	immutable := true
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: r.self.namespace,
			Labels: map[string]string{
				v1alpha1.LabelManagedBy:     v1alpha1.ManagedBy,
				v1alpha1.LabelOwnerUID:      r.task.BackupUID,
				v1alpha1.LabelTask:          string(v1alpha1.TaskWitness),
				v1alpha1.LabelVeleroExclude: "true",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: v1alpha1.GroupVersion.String(), Kind: "VMStateReport", Name: r.report.Name, UID: r.report.UID,
			}},
		},
		Type:      corev1.SecretTypeOpaque,
		Immutable: &immutable,
		Data:      map[string][]byte{config.SecretKey: chunk},
	}
}

func (r *runner) recordFirst(ctx context.Context, step witness.Step, recorded v1alpha1.WitnessReading) error {
	efi, err := json.Marshal(r.captured.facts.EFI)
	if err != nil {
		return fmt.Errorf("encode what the variables say: %w", err)
	}
	klog.InfoS("Recording a reading", "step", step, "digest", recorded.Digest, "files", len(r.captured.reading.Files), "bytes", r.captured.bytes)
	err = r.record(ctx, func(s *v1alpha1.VMStateReportStatus) {
		s.Witness.StateDigest, s.Witness.SizeBytes = r.captured.digest, r.captured.bytes
		s.Witness.SecretNames = r.captured.secrets
		if step == witness.StepReadFenced {
			s.Witness.Fenced = &recorded
		} else {
			s.Witness.First = &recorded
		}
		if r.captured.facts.EFI != nil {
			s.Witness.EFI = &runtime.RawExtension{Raw: efi}
		}
		s.Message = strings.Join(r.captured.warnings, "; ")
		if step == witness.StepReadOnce {
			s.Witness.Second, s.Outcome = &recorded, v1alpha1.OutcomeSucceeded
		}
	})
	return err
}

// readSecond reads again and records what changed since the recorded first reading.
func (r *runner) readSecond(ctx context.Context) error {
	reading, recorded, err := r.look(ctx)
	no, refused := errors.AsType[refusal](err)
	switch {
	case refused && no.reason != v1alpha1.ReasonStateChanged:
		return r.fail(ctx, no.reason, no.message)
	case err != nil && !refused:
		return err
	}
	changed := r.changes(reading, recorded.Digest)
	if refused { // recorded.Digest is of no file at all, so it differs
		changed = []string{no.message}
	}
	klog.InfoS("Recording the second reading", "digest", recorded.Digest, "changed", changed)
	return r.record(ctx, func(st *v1alpha1.VMStateReportStatus) {
		st.Witness.Second, st.Witness.Changed, st.Outcome = &recorded, changed, v1alpha1.OutcomeSucceeded
	})
}

// changes says what differs from the recorded first reading. A process that did not
// make that reading knows its digest alone.
func (r *runner) changes(now firmware.Reading, digest string) []string {
	first := r.report.Status.Witness.First.Digest
	if digest == first {
		return nil
	}
	var changed []string
	if r.captured != nil && r.captured.reading.Digest() == first {
		for _, c := range r.captured.reading.Compare(now) {
			changed = append(changed, c.String())
		}
	}
	if changed == nil {
		changed = []string{"the firmware state changed; the witness restarted in between and cannot say which file"}
	}
	return changed
}

func newNonce() string {
	b := make([]byte, 5)
	_, _ = rand.Read(b) // never fails (package documentation)
	return hex.EncodeToString(b)
}
