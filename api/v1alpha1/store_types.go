package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S3Store is a bucket of an S3-compatible server, and the folder in it.
// +kubebuilder:validation:XValidation:rule="has(self.credentialsSecretRef) != has(self.credentials)",message="s3 needs either credentials or, for short, credentialsSecretRef"
// +kubebuilder:validation:XValidation:rule="!has(self.serverSideEncryption) || self.serverSideEncryption.type != 'SSE-C' || self.endpoint.startsWith('https://')",message="with SSE-C the key goes with every request: the endpoint must be https"
type S3Store struct {
	// endpoint of the server, with its scheme: https://s3.example.com. Plain http is accepted
	// and said as a condition: the data is encrypted, the credentials' use is not.
	// +kubebuilder:validation:Pattern=`^https?://[^/\s]+$`
	// +kubebuilder:validation:MaxLength=300
	Endpoint string `json:"endpoint"`
	// bucket that exists already.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=63
	Bucket string `json:"bucket"`
	// prefix of every object, without slashes at its ends. One repository lives under one prefix.
	// +optional
	// +kubebuilder:validation:Pattern=`^([^/\s]+(/[^/\s]+)*)?$`
	// +kubebuilder:validation:MaxLength=200
	Prefix string `json:"prefix,omitempty"`
	// region of the bucket. Default us-east-1.
	// +optional
	// +kubebuilder:default=us-east-1
	Region string `json:"region,omitempty"`
	// addressing of the bucket: Path (https://host/bucket) or VirtualHosted (https://bucket.host). Default Path.
	// +optional
	// +kubebuilder:default=Path
	// +kubebuilder:validation:Enum=Path;VirtualHosted
	Addressing string `json:"addressing,omitempty"`
	// caBundleConfigMapRef is a ConfigMap whose key ca.crt holds the certificates to trust,
	// beside those of the system.
	// +optional
	CABundleConfigMapRef *ObjectRef `json:"caBundleConfigMapRef,omitempty"`
	// credentialsSecretRef is a Secret with the keys accessKeyID and secretAccessKey: for short,
	// credentials.secretRef. Credentials need to read, write and list under the prefix; deleting is
	// used by the probe alone. With objectLock also s3:PutObjectRetention, s3:GetObjectRetention,
	// s3:GetObjectVersion and s3:ListBucketVersions.
	// +optional
	CredentialsSecretRef *ObjectRef `json:"credentialsSecretRef,omitempty"`
	// credentials say as whom the bucket is used.
	// +optional
	Credentials *S3Credentials `json:"credentials,omitempty"`
	// proxyURL is an HTTP proxy on the way to the server, and to the token service of
	// credentials.webIdentity.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://[^@/\s]+$`
	// +kubebuilder:validation:MaxLength=300
	ProxyURL string `json:"proxyURL,omitempty"`
	// objectLock has the server keep what backups need for a time. Default no lock.
	// +optional
	ObjectLock *ObjectLock `json:"objectLock,omitempty"`
	// serverSideEncryption asks the server to encrypt at rest. Default what the bucket does by itself.
	// +optional
	ServerSideEncryption *ServerSideEncryption `json:"serverSideEncryption,omitempty"`
}

// RootKeyProof is what the holder of an identity says of a store: that its signing key is the repository's root key.
// kubectl vmstate prove makes it.
type RootKeyProof struct {
	// recipient is the fingerprint of the identity's recipient.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	Recipient string `json:"recipient"`
	// proof is kept in the bucket; only the identity can check it.
	// +kubebuilder:validation:MaxLength=44
	Proof []byte `json:"proof"`
	// answer shows that the challenge in status.challenges was opened.
	// +kubebuilder:validation:MaxLength=44
	Answer []byte `json:"answer"`
}

// EpochDistrust takes back the trust in the signing key of a key epoch that is over.
type EpochDistrust struct {
	// epoch whose signing key is distrusted.
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`
	// lastGood are the last good backups, one for each virtual machine: they and those before them in their chains
	// are still believed, nothing else that this key has signed is.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	LastGood []GoodCommit `json:"lastGood"`
}

// GoodCommit names a backup in the store.
type GoodCommit struct {
	// key of the commit record, as in status.export.commit of a backup.
	// +kubebuilder:validation:MaxLength=512
	Key string `json:"key"`
	// digest of that record in lower-case hexadecimal.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	Digest string `json:"digest"`
}

// VMStateStoreSpec says where exports go, and who may read them.
// +kubebuilder:validation:XValidation:rule="self.keyEpoch == oldSelf.keyEpoch || self.keyEpoch == oldSelf.keyEpoch + 1",message="keyEpoch only goes up, by one: each epoch's keys are signed by those before"
// +kubebuilder:validation:XValidation:rule="self.s3.bucket == oldSelf.s3.bucket && has(self.s3.prefix) == has(oldSelf.s3.prefix) && (!has(self.s3.prefix) || self.s3.prefix == oldSelf.s3.prefix)",message="bucket and prefix of a store cannot be changed: the backups of this store are there; create another VMStateStore"
// +kubebuilder:validation:XValidation:rule="(has(self.s3.serverSideEncryption) && self.s3.serverSideEncryption.type == 'SSE-C') == (has(oldSelf.s3.serverSideEncryption) && oldSelf.s3.serverSideEncryption.type == 'SSE-C')",message="a store does not change to or from SSE-C: what was written before could not be read; create another VMStateStore with another prefix"
// +kubebuilder:validation:XValidation:rule="self.recipients.all(r, !r.upperAscii().startsWith('AGE-SECRET-KEY-') && !r.upperAscii().startsWith('AGE-PLUGIN-'))",message="recipients holds an identity (AGE-SECRET-KEY-…), which must never be in the cluster: give the recipient (age1…) that belongs to it, and consider the identity leaked"
// +kubebuilder:validation:XValidation:rule="self.recipients.all(r, r.startsWith('age1'))",message="each entry of recipients is an age recipient: age1pq1… (kubectl vmstate keygen makes one) or age1…"
// +kubebuilder:validation:XValidation:rule="self.recipients.all(r, r.startsWith('age1pq1')) || self.recipients.all(r, !r.startsWith('age1pq1'))",message="recipients mixes post-quantum (age1pq1…) and classic (age1…) recipients; age cannot encrypt one file to both kinds, so use one kind"
// +kubebuilder:validation:XValidation:rule="self.recipients.all(r, self.recipients.exists_one(other, other == r))",message="recipients names one recipient twice"
type VMStateStoreSpec struct {
	// s3 is the bucket.
	S3 S3Store `json:"s3"`
	// recipients are the age recipients that every backup is encrypted to: whoever holds one
	// of their identities can read, nobody else, this cluster included. Two are recommended:
	// one to work with, one kept elsewhere.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=4096
	// +listType=atomic
	Recipients []string `json:"recipients"`
	// limits of one Job, and of how many there are. Default none.
	// +optional
	Limits *StoreLimits `json:"limits,omitempty"`
	// auditDays after the last time that the disks of a virtual machine were read in full, its next
	// backup reads them in full and compares what it finds with what the CSI driver says has changed.
	// Default 7.
	// +optional
	// +kubebuilder:default=7
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=365
	AuditDays int32 `json:"auditDays,omitempty"`
	// keyEpoch of the index and signing keys that backups are written with. One more makes new ones, signed by those
	// before; what was written before stays readable. kubectl vmstate rotate-keys raises it. Default 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	KeyEpoch int64 `json:"keyEpoch,omitempty"`
	// proofs by holders of identities that the signing key is right. kubectl vmstate prove adds one.
	// +optional
	// +listType=map
	// +listMapKey=recipient
	// +kubebuilder:validation:MaxItems=32
	Proofs []RootKeyProof `json:"proofs,omitempty"`
	// distrust takes back the trust in signing keys that somebody else may have. kubectl vmstate distrust writes it.
	// It is signed with the keys of keyEpoch and kept in the bucket, for every reader.
	// +optional
	// +listType=map
	// +listMapKey=epoch
	// +kubebuilder:validation:MaxItems=32
	Distrust []EpochDistrust `json:"distrust,omitempty"`
	// adopt says what becomes of backups that the store holds and this namespace does not know.
	// Never: nothing, until somebody asks (kubectl vmstate import). All: each becomes a
	// VMStateBackup here, once: one that is deleted afterwards is not made again. Default Never.
	// +optional
	// +kubebuilder:default=Never
	Adopt AdoptPolicy `json:"adopt,omitempty"`
	// catalogue says how the store is listed and compared with what is known here.
	// +optional
	Catalogue *CatalogueSpec `json:"catalogue,omitempty"`
	// maintenance removes from the bucket what nothing needs any more. Without it nothing is ever
	// deleted there.
	// +optional
	Maintenance *MaintenanceSpec `json:"maintenance,omitempty"`
	// verification reads back what is in the store, without any identity. Without it nobody
	// notices damage before a restore does.
	// +optional
	Verification *VerificationSpec `json:"verification,omitempty"`
}

// RecipientChallenge is an age file that only the identity of its recipient opens.
type RecipientChallenge struct {
	// recipient is the fingerprint of the recipient.
	Recipient string `json:"recipient"`
	// challenge for kubectl vmstate prove.
	Challenge []byte `json:"challenge"`
}

// TrustMark is the most that was seen of a repository's signing keys.
// +kubebuilder:validation:XValidation:rule="self.keyEpoch > oldSelf.keyEpoch || self.keyEpoch == oldSelf.keyEpoch && self.signingKey == oldSelf.signingKey",message="what was seen of a store's signing keys only goes forward: who has judged that it was wrong removes all of status.trust"
type TrustMark struct {
	// keyEpoch is the latest epoch.
	// +kubebuilder:validation:Minimum=1
	KeyEpoch int64 `json:"keyEpoch"`
	// signingKey of that epoch, in base64.
	// +kubebuilder:validation:MaxLength=44
	SigningKey string `json:"signingKey"`
	// distrust are the latest words on epochs whose signing key is distrusted.
	// +optional
	// +listType=map
	// +listMapKey=epoch
	// +kubebuilder:validation:MaxItems=1000
	Distrust []DistrustMark `json:"distrust,omitempty"`
}

// DistrustMark is the latest word on a distrusted epoch that was seen in a store.
type DistrustMark struct {
	// epoch that it is about.
	Epoch int64 `json:"epoch"`
	// number of the word in the store.
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`
	// digest of the word in lower-case hexadecimal.
	// +kubebuilder:validation:MaxLength=64
	Digest string `json:"digest"`
}

// FindingOutcome is what a check found.
// +kubebuilder:validation:Enum=OK;Warning;Failed
type FindingOutcome string

const (
	// FindingOK: as it should be.
	FindingOK FindingOutcome = "OK"
	// FindingWarning: works, with a limit that the message names.
	FindingWarning FindingOutcome = "Warning"
	// FindingFailed: stands in the way; the message says what to do.
	FindingFailed FindingOutcome = "Failed"
)

// Finding is one thing that was checked.
type Finding struct {
	// check that was made.
	Check string `json:"check"`
	// outcome of the check.
	Outcome FindingOutcome `json:"outcome"`
	// message says what was found and what to do, for a person.
	// +optional
	Message string `json:"message,omitempty"`
}

// VMStateStoreStatus is what the probe found.
type VMStateStoreStatus struct {
	// observedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions: Ready (restores can read from it), Writable (backups can be written to it),
	// Redundant (two recipients or more), Proven (an identity was shown to open it), Catalogued (what it
	// holds is what is known here), Maintained (what nothing needs is removed), Verified (what was read
	// back is as it was written), and Reconciling or Stalled while they are true.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// probedAt is when the store was probed last.
	// +optional
	ProbedAt *metav1.Time `json:"probedAt,omitempty"`
	// findings of the last probe, one for each check.
	// +optional
	// +listType=map
	// +listMapKey=check
	Findings []Finding `json:"findings,omitempty"`
	// checksumMode that the server was found to verify: CRC32C, CRC32CTrailer, SHA256, ContentMD5 or None.
	// +optional
	ChecksumMode string `json:"checksumMode,omitempty"`
	// repositoryID of the repository under the prefix.
	// +optional
	RepositoryID string `json:"repositoryID,omitempty"`
	// signingKey is the public key, in base64, that every commit of this cluster is signed
	// with. Keep it outside of the cluster and the bucket: it tells a true backup from a forged one.
	// +optional
	SigningKey string `json:"signingKey,omitempty"`
	// keysSecretName is the Secret that holds the index, name and signing keys of the repository.
	// +optional
	KeysSecretName string `json:"keysSecretName,omitempty"`
	// keyEpoch of the keys in that Secret.
	// +optional
	KeyEpoch int64 `json:"keyEpoch,omitempty"`
	// trust is the most that was seen here of the repository's signing keys, and of what is distrusted. It only goes
	// forward. A bucket that does not show all of it was set back or replaced: nothing is read from it or written to
	// it until it does (Ready KeysSetBack).
	// +optional
	Trust *TrustMark `json:"trust,omitempty"`
	// challenges for the recipients whose identity has not shown yet that it opens what is written here.
	// +optional
	// +listType=map
	// +listMapKey=recipient
	Challenges []RecipientChallenge `json:"challenges,omitempty"`
	// proven are the fingerprints of the recipients whose identity has.
	// +optional
	// +listType=set
	Proven []string `json:"proven,omitempty"`
	// catalogue is how listing the store stands, and what it found.
	// +optional
	Catalogue *CatalogueStatus `json:"catalogue,omitempty"`
	// maintenance is how cleaning up stands, and what it did.
	// +optional
	Maintenance *MaintenanceStatus `json:"maintenance,omitempty"`
	// verification is how reading back stands, and what it found.
	// +optional
	Verification *VerificationStatus `json:"verification,omitempty"`
	// movers are those at work and those that wait, where spec.limits bounds their number.
	// +optional
	Movers *MoversStatus `json:"movers,omitempty"`
	// driverFindings are the CSI drivers that audits found to tell of too little, the newest last: also those of backups
	// that are gone by now. Until an audit of its own since then was without fault, or checkedAt is set, every backup of a disk
	// of that driver reads everything, and compares.
	// +optional
	// +listType=atomic
	DriverFindings []DriverFinding `json:"driverFindings,omitempty"`
}

// DriverFinding is what an audit found: something had changed where a CSI driver told of no change.
type DriverFinding struct {
	// driver that told too little.
	Driver string `json:"driver"`
	// backupName of the backup whose audit found it.
	BackupName string `json:"backupName"`
	// commit of that backup.
	Commit CommitRef `json:"commit"`
	// diskName is the volume, untoldBytes how much of it had changed.
	DiskName    string `json:"diskName"`
	UntoldBytes int64  `json:"untoldBytes"`
	// foundAt is the moment of that backup.
	FoundAt metav1.MicroTime `json:"foundAt"`
	// before is what the annotation vmstate.io/driver-checked of the store was then: only another value speaks of this finding.
	// +optional
	Before string `json:"before,omitempty"`
	// checkedAt is when a person said that the driver may be used again.
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
}

// VMStateStore is a place that backups are exported to, and restored from.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmst,categories=vmstate
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.s3.endpoint`
// +kubebuilder:printcolumn:name="Bucket",type=string,JSONPath=`.spec.s3.bucket`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Writable",type=string,JSONPath=`.status.conditions[?(@.type=="Writable")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 44",message="a store's name has at most 44 characters"
type VMStateStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   VMStateStoreSpec   `json:"spec"`
	Status VMStateStoreStatus `json:"status,omitempty"`
}

// VMStateStoreList is a list of VMStateStore.
//
// +kubebuilder:object:root=true
type VMStateStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VMStateStore `json:"items"`
}
