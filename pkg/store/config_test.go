package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	"github.com/vmstate/vmstate/pkg/mover/config"
)

// Each way to be somebody has its mount, and no other.
func TestMounts(t *testing.T) {
	secret := []job.Mount{{Secret: "s", Path: job.PathCredentials, Optional: true}}
	for name, tc := range map[string]struct {
		s3   v1alpha1.S3Store
		want []job.Mount
	}{
		"Short":  {v1alpha1.S3Store{CredentialsSecretRef: &v1alpha1.ObjectRef{Name: "s"}}, secret},
		"Secret": {v1alpha1.S3Store{Credentials: &v1alpha1.S3Credentials{SecretRef: &v1alpha1.ObjectRef{Name: "s"}}}, secret},
		"WebIdentity": {
			v1alpha1.S3Store{Credentials: &v1alpha1.S3Credentials{WebIdentity: &v1alpha1.WebIdentity{ServiceAccountName: "a", Audience: "sts"}}},
			[]job.Mount{{Audience: "sts", Account: "a", Path: job.PathWebIdentity}},
		},
		"InstanceRole": {v1alpha1.S3Store{Credentials: &v1alpha1.S3Credentials{InstanceRole: &v1alpha1.InstanceRole{}}}, nil},
		"CustomerKey": {
			v1alpha1.S3Store{
				CredentialsSecretRef: &v1alpha1.ObjectRef{Name: "s"},
				ServerSideEncryption: &v1alpha1.ServerSideEncryption{Type: "SSE-C", CustomerKeySecretRef: &v1alpha1.ObjectRef{Name: "k"}},
			},
			append(secret[:1:1], job.Mount{Secret: "k", Path: job.PathCustomerKey, Optional: true}),
		},
	} {
		got := Mounts(&v1alpha1.VMStateStore{Spec: v1alpha1.VMStateStoreSpec{S3: tc.s3}})
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: mounts (-want +got):\n%s", name, diff)
		}
	}
}

// A Job is told which keys it must find in the bucket: those that this cluster has made, and taken back.
func TestConfigKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		has      int64
		seen     int64
		distrust []int64
		epoch    uint32
		want     []uint32
	}{
		"Elsewhere":  {0, 0, []int64{1}, 0, nil},
		"First":      {1, 0, nil, 1, nil},
		"Distrusted": {3, 0, []int64{1, 2}, 3, []uint32{1, 2}},
		"NotYetOver": {2, 0, []int64{2}, 2, nil},
		"Seen":       {0, 4, []int64{1}, 4, []uint32{1}},
	} {
		s := &v1alpha1.VMStateStore{}
		s.Status.KeyEpoch = tc.has
		if tc.seen > 0 {
			s.Status.Trust = &v1alpha1.TrustMark{KeyEpoch: tc.seen, SigningKey: "k", Distrust: []v1alpha1.DistrustMark{{Epoch: 1, Number: 5, Digest: "dd"}}}
		}
		for _, n := range tc.distrust {
			s.Spec.Distrust = append(s.Spec.Distrust, v1alpha1.EpochDistrust{Epoch: n})
		}
		c := Config(s)
		if c.KeyEpoch != tc.epoch || !cmp.Equal(c.Distrusted, tc.want) {
			t.Errorf("%s: told of epoch %d and distrusted %v, want %d and %v", name, c.KeyEpoch, c.Distrusted, tc.epoch, tc.want)
		}
		if tc.seen > 0 && (c.EpochKey != "k" || !cmp.Equal(c.Words, []config.Word{{Epoch: 1, Number: 5, Digest: "dd"}})) {
			t.Errorf("%s: told of key %q and words %v", name, c.EpochKey, c.Words)
		}
	}
}
