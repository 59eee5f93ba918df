package v1alpha1

// ObjectLock has the server keep what backups need, whoever asks to delete it. The bucket has
// versioning and object lock on. While a backup is kept, everything that it needs is locked for
// retentionDays from now at least, since the lock is extended once a month; what is to be removed
// waits until its lock has ended.
type ObjectLock struct {
	// mode of the lock: Governance (those with a permission of their own may end it) or
	// Compliance (nobody may, not even the owner of the bucket's account).
	// +kubebuilder:validation:Enum=Governance;Compliance
	Mode string `json:"mode"`
	// retentionDays that what backups need is locked for at least. What is written is locked for
	// 30 days more, so that it need not be extended each day.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=36500
	RetentionDays int32 `json:"retentionDays"`
}

// ServerSideEncryption asks the server to encrypt objects at rest. Backups are encrypted before
// they are sent, whatever is set here: it serves rules that demand it.
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || self.type == 'SSE-KMS'",message="kmsKeyID belongs to type SSE-KMS"
// +kubebuilder:validation:XValidation:rule="has(self.customerKeySecretRef) == (self.type == 'SSE-C')",message="type SSE-C needs customerKeySecretRef, and no other type has it"
type ServerSideEncryption struct {
	// type: SSE-S3 (the server's own key), SSE-KMS (a key of its key management) or SSE-C (a key
	// that goes with every request: without it nothing in the bucket can be read).
	// +kubebuilder:validation:Enum=SSE-S3;SSE-KMS;SSE-C
	Type string `json:"type"`
	// kmsKeyID of SSE-KMS. Default the bucket's key.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	KMSKeyID string `json:"kmsKeyID,omitempty"`
	// customerKeySecretRef is a Secret whose key customerKey holds the 32 bytes of SSE-C, as
	// they are or in base64.
	// +optional
	CustomerKeySecretRef *ObjectRef `json:"customerKeySecretRef,omitempty"`
}

// S3Credentials says as whom the bucket is used: exactly one of its fields is set.
// +kubebuilder:validation:XValidation:rule="[has(self.secretRef), has(self.webIdentity), has(self.instanceRole)].filter(x, x).size() == 1",message="credentials needs exactly one of secretRef, webIdentity and instanceRole"
type S3Credentials struct {
	// secretRef is a Secret with the keys accessKeyID and secretAccessKey, and sessionToken for
	// keys that end. It is read again while a Job runs, so that it may be replaced at any time.
	// +optional
	SecretRef *ObjectRef `json:"secretRef,omitempty"`
	// webIdentity trades a token of a service account for credentials (AWS IRSA, and servers with
	// AssumeRoleWithWebIdentity).
	// +optional
	WebIdentity *WebIdentity `json:"webIdentity,omitempty"`
	// instanceRole takes the role of the machine, as its metadata service, or that of the
	// container platform (ECS, EKS Pod Identity), gives it to the pods.
	// +optional
	InstanceRole *InstanceRole `json:"instanceRole,omitempty"`
}

// WebIdentity is a service account that a cloud trusts.
type WebIdentity struct {
	// serviceAccountName of the namespace that the store's Jobs run under, and whose token is
	// traded. It exists already; the cloud's role trusts system:serviceaccount:<namespace>:<name>.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName"`
	// roleARN of the role to take on. Default what the token service finds by the token.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	RoleARN string `json:"roleARN,omitempty"`
	// audience of the token. Default sts.amazonaws.com.
	// +optional
	// +kubebuilder:default=sts.amazonaws.com
	// +kubebuilder:validation:MaxLength=253
	Audience string `json:"audience,omitempty"`
	// stsEndpoint of the token service. Default that of AWS in the bucket's region.
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://[^@\s]+$`
	// +kubebuilder:validation:MaxLength=300
	STSEndpoint string `json:"stsEndpoint,omitempty"`
}

// InstanceRole has no settings.
type InstanceRole struct{}

// StoreLimits bound what one Job takes of the network and of the cluster's storage, and how many there are at a time.
// +kubebuilder:validation:XValidation:rule="!has(self.movers) || !has(self.moversPerNode) || self.movers == 0 || self.moversPerNode <= self.movers",message="moversPerNode is more than movers, so that it would bound nothing: make it smaller, or leave it out"
type StoreLimits struct {
	// uploadBytesPerSecond that a Job sends to the bucket at most. Default no limit.
	// +optional
	// +kubebuilder:validation:Minimum=65536
	UploadBytesPerSecond int64 `json:"uploadBytesPerSecond,omitempty"`
	// readBytesPerSecond that a Job reads of the volumes that it exports at most. Default no limit.
	// +optional
	// +kubebuilder:validation:Minimum=65536
	ReadBytesPerSecond int64 `json:"readBytesPerSecond,omitempty"`
	// movers that are at work for the store at a time: Jobs that export, import, clean up or read back. Restores go
	// first, then backups, then maintenance and verification, of each what has waited longest; maintenance that
	// has waited for a day goes before backups. Probing, listing and resolving are small, and do not count.
	// Default 0, no limit: nothing waits that nobody asked to wait, and what the cluster has no room for waits anyway.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Movers int32 `json:"movers,omitempty"`
	// moversPerNode are those of them on one node. The scheduler keeps it, by anti-affinity: a mover of which the volumes
	// are on a node with as many waits as a pod, and counts as one of movers. Movers that began before it was set do not
	// count. Default 0, no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	MoversPerNode int32 `json:"moversPerNode,omitempty"`
}
