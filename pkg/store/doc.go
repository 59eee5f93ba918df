// Package store decides the next step of a VMStateStore: when it is probed, when it is listed, and
// what the Jobs that do so say of it.
//
// Plan looks at what exists; package controllers looks for it. The first row that holds wins:
//
//	seen                                        done                        conditions
//	a probe of this generation ended            record what it found        Ready, Writable, Redundant by its findings
//	it does not show what status.trust says     keep status.trust           Ready KeysSetBack
//	a probe of this generation does not start   record that, after a while  Ready SetupFailed
//	a probe of this generation runs             wait                        as they are; Probing or JobPending at first
//	remains of a Job that has ended             remove them                 as they are
//	never probed, or probed for another spec    the setup Job               Probing
//	probed long ago, no chore under way         the setup Job               as they are
//	a chore is recorded, its Job is missing     make it                     as they are
//	a chore's report names what is not here     make or mark the objects    as they are
//	a chore's report, nothing left to make      record what it found        Catalogued by its findings
//	a chore's Job failed or does not start      record that, pause          Catalogued, by the report's reason
//	a chore's Job runs                          wait                        as they are
//	Ready, a chore is due, no mover for it      wait for its turn           as they are
//	Ready, a chore is due                       record that it begins       as they are
//	none of these                               wait until then             as they are
//
// Beside every row, where spec.limits bounds the movers, who may work is decided (package queue) and recorded in status.movers:
// a backup, a restore, or a chore that moves much begins only after that.
//
// A store that is not usable is probed again after retryEvery, a usable one after probeEvery. A
// store that was usable stays so while it is probed again: an outage is known when the probe says so.
//
// # Chores
//
// What a store has done from time to time, each by a Job with its own mounts, one at a time, and none
// begun while the store is not Ready. A run is recorded, with the name of its Job, before the
// Job is made. After a failure the pause doubles, from firstPause to longestPause. Reports are
// written by pods whose account others in the namespace can borrow: what they say is checked for
// its form, is never a reason to delete anything, and a restore proves the record again.
//
//	catalogue   lists the records of backups, a page a Job; adopts what is not here (see scopeOf),
//	            fills backups with spec.commit, marks those whose record is gone. Due when asked
//	            for, when the last page left more, and after spec.catalogue.intervalHours
//
// What was adopted once and deleted here is not adopted again: the newest sequence that was ever
// seen of each chain is remembered, and only what is newer is new. Asking (annotation
// vmstate.io/import) adopts everything. The same memory tells a bucket that was set back.
package store

import (
	"fmt"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/job"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
)

// Config is a store as a mover is told of it.
func Config(s *v1alpha1.VMStateStore) *moverconfig.Store {
	c := &moverconfig.Store{
		Endpoint: s.Spec.S3.Endpoint, Bucket: s.Spec.S3.Bucket, Prefix: s.Spec.S3.Prefix, Region: s.Spec.S3.Region,
		Addressing: s.Spec.S3.Addressing, Checksum: s.Status.ChecksumMode, Proxy: s.Spec.S3.ProxyURL,
		CABundle: s.Spec.S3.CABundleConfigMapRef != nil, SigningKey: s.Status.SigningKey,
	}
	if lock := s.Spec.S3.ObjectLock; lock != nil {
		c.Lock = &moverconfig.Lock{Mode: lock.Mode, Days: int(lock.RetentionDays)}
	}
	if sse := s.Spec.S3.ServerSideEncryption; sse != nil {
		c.Encryption, c.KMSKeyID = sse.Type, sse.KMSKeyID
	}
	if limits := s.Spec.Limits; limits != nil {
		c.UploadBytesPerSecond, c.ReadBytesPerSecond = limits.UploadBytesPerSecond, limits.ReadBytesPerSecond
	}
	if as := s.Spec.S3.Credentials; as != nil && as.WebIdentity != nil {
		c.WebIdentity = &moverconfig.WebIdentity{RoleARN: as.WebIdentity.RoleARN, Endpoint: as.WebIdentity.STSEndpoint}
	} else if as != nil && as.InstanceRole != nil {
		c.InstanceRole = true
	}
	Known(s, c)
	return c
}

// Mounts are what a mover needs to reach a store. They are optional: the program says what is
// missing better than a pod that cannot start.
func Mounts(s *v1alpha1.VMStateStore) []job.Mount {
	out := credentials(&s.Spec.S3)
	if sse := s.Spec.S3.ServerSideEncryption; sse != nil && sse.CustomerKeySecretRef != nil {
		out = append(out, job.Mount{Secret: sse.CustomerKeySecretRef.Name, Path: job.PathCustomerKey, Optional: true})
	}
	if ref := s.Spec.S3.CABundleConfigMapRef; ref != nil {
		out = append(out, job.Mount{ConfigMap: ref.Name, Path: job.PathCA, Optional: true})
	}
	return out
}

// credentials are what a mover mounts to be somebody to the bucket; nothing for the role of its node.
func credentials(s3 *v1alpha1.S3Store) []job.Mount {
	secret := s3.CredentialsSecretRef
	if as := s3.Credentials; as != nil {
		if w := as.WebIdentity; w != nil {
			return []job.Mount{{Audience: w.Audience, Account: w.ServiceAccountName, Path: job.PathWebIdentity}}
		}
		secret = as.SecretRef
	}
	if secret == nil {
		return nil
	}
	return []job.Mount{{Secret: secret.Name, Path: job.PathCredentials, Optional: true}}
}

// KeysSecretName is the Secret that holds the index, name and signing keys of the epoch that the store asks for.
func KeysSecretName(s *v1alpha1.VMStateStore) string { return keysSecretName(s, epoch(s)) }

func keysSecretName(s *v1alpha1.VMStateStore, epoch int64) string {
	if epoch <= 1 {
		return s.Name + "-repository-keys"
	}
	return fmt.Sprintf("%s-repository-keys-%d", s.Name, epoch)
}

// epoch of the keys that the store asks for.
func epoch(s *v1alpha1.VMStateStore) int64 { return max(1, s.Spec.KeyEpoch) }
