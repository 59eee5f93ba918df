// Package config is what a mover is told, as JSON in the environment of its Job.
//
// It is apart from package mover so that who plans a Job need not import what moves
// data. It holds no secret: credentials, keys and identities come as mounted files.
package config

import (
	"encoding/json"
	"time"

	"github.com/vmstate/vmstate/pkg/task"
)

// Config is the task of one mover. Exactly the section of its subcommand is set.
type Config struct {
	// Store that is set up, written or read; nil where nothing but claims is used.
	Store     *Store     `json:"store,omitempty"`
	Setup     *Setup     `json:"setup,omitempty"`
	Export    *Export    `json:"export,omitempty"`
	Resolve   *Resolve   `json:"resolve,omitempty"`
	Import    *Import    `json:"import,omitempty"`
	KeepState *KeepState `json:"keepState,omitempty"`
	Catalogue *Catalogue `json:"catalogue,omitempty"`
	Maintain  *Maintain  `json:"maintain,omitempty"`
	Verify    *Verify    `json:"verify,omitempty"`
}

// Store is a bucket. Its credentials are mounted files, as is its CA bundle.
type Store struct {
	Endpoint   string `json:"endpoint"`
	Bucket     string `json:"bucket"`
	Prefix     string `json:"prefix,omitempty"`
	Region     string `json:"region,omitempty"`
	Addressing string `json:"addressing,omitempty"`
	// Checksum is the mode that setup found (status.checksumMode); setup ignores it.
	Checksum string `json:"checksum,omitempty"`
	// Proxy on the way to the server; empty for none.
	Proxy string `json:"proxy,omitempty"`
	// Lock of what backups need; nil for none.
	Lock *Lock `json:"lock,omitempty"`
	// Encryption that the server is asked for: SSE-S3, SSE-KMS or SSE-C; empty for none.
	Encryption string `json:"encryption,omitempty"`
	KMSKeyID   string `json:"kmsKeyID,omitempty"`
	// WebIdentity, InstanceRole: where credentials come from, if not from a Secret.
	WebIdentity  *WebIdentity `json:"webIdentity,omitempty"`
	InstanceRole bool         `json:"instanceRole,omitempty"`
	// UploadBytesPerSecond and ReadBytesPerSecond bound one Job; 0 for no bound.
	UploadBytesPerSecond int64 `json:"uploadBytesPerSecond,omitempty"`
	ReadBytesPerSecond   int64 `json:"readBytesPerSecond,omitempty"`
	// CABundle says that a CA bundle is mounted; its absence is then an error.
	CABundle bool `json:"caBundle,omitempty"`
	// SigningKey is the root signing key in base64 (status.signingKey) that every
	// backup read must go back to; empty if it is not known.
	SigningKey string `json:"signingKey,omitempty"`
	// KeyEpoch is the latest epoch of keys that this cluster has seen, Distrusted are those whose signing key it has
	// taken back: a restore from a store that hides either is refused.
	KeyEpoch   uint32   `json:"keyEpoch,omitempty"`
	Distrusted []uint32 `json:"distrusted,omitempty"`
	// EpochKey is the signing key of KeyEpoch in base64; empty if it is not known. Words are the latest on distrusted
	// epochs that were seen.
	EpochKey string `json:"epochKey,omitempty"`
	Words    []Word `json:"words,omitempty"`
}

// Word names a word on a distrusted epoch in the store.
type Word struct {
	Epoch  uint32 `json:"epoch"`
	Number int    `json:"number"`
	// Digest in lower-case hexadecimal.
	Digest string `json:"digest"`
}

// Lock is spec.s3.objectLock: Mode is Governance or Compliance.
type Lock struct {
	Mode string `json:"mode"`
	Days int    `json:"days"`
}

// WebIdentity trades the mounted token for credentials of a role.
type WebIdentity struct {
	RoleARN  string `json:"roleARN,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
}

// Setup probes a store and makes or opens its repository.
type Setup struct {
	Recipients []string `json:"recipients"`
	// KeysSecretName is the Secret in the pod's namespace that the keys are kept in.
	KeysSecretName string `json:"keysSecretName"`
	// Epoch of the keys; 0 is 1. The keys of the epoch before are mounted, if there are any.
	Epoch uint32 `json:"epoch,omitempty"`
	// Proofs to be kept in the store.
	Proofs []Proof `json:"proofs,omitempty"`
	// Distrust to be said in the store.
	Distrust []Distrust `json:"distrust,omitempty"`
}

// Proof is a root key proof by the holder of an identity.
type Proof struct {
	// Recipient is a fingerprint.
	Recipient string `json:"recipient"`
	Proof     []byte `json:"proof"`
	Answer    []byte `json:"answer"`
}

// Distrust takes back the trust in the signing key of an epoch, but for some backups and those before them.
type Distrust struct {
	Epoch    uint32   `json:"epoch"`
	LastGood []Commit `json:"lastGood"`
}

// Commit names one backup in the store.
type Commit struct {
	Key string `json:"key"`
	// Digest in lower-case hexadecimal.
	Digest string `json:"digest"`
}

// VM is a virtual machine: where, which and who.
type VM struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// Mode says what a volume is to a pod.
type Mode string

const (
	// Block is a raw device.
	Block Mode = "Block"
	// Filesystem is a folder with disk.img in it.
	Filesystem Mode = "Filesystem"
)

// Export sends one moment to the store. Volumes, moment and documents are recorded,
// so a rerun is told the same.
type Export struct {
	VM VM `json:"vm"`
	// BackupName and BackupUID of the object that asks for it. The UID makes the run:
	// two exports of one UID are one backup.
	BackupName string `json:"backupName"`
	BackupUID  string `json:"backupUID"`
	// Created is the end of the cut.
	Created time.Time `json:"created"`
	// Parent that unchanged data is taken over from; nil sends all.
	Parent     *Commit  `json:"parent,omitempty"`
	Recipients []string `json:"recipients"`
	// Damaged are objects of the store that the verification found damaged: what they
	// held is sent again.
	Damaged []string `json:"damaged,omitempty"`
	// Disks in the order of the virtual machine's spec.
	Disks []Disk `json:"disks"`
	// State is the firmware state, in the witness's Secrets; nil if there is none.
	State *State `json:"state,omitempty"`
	// Moment is recorded as it is, at most 64 KiB; resolve returns it.
	Moment json.RawMessage `json:"moment"`
}

// Disk is one disk to be exported, mounted by its name.
type Disk struct {
	Name string `json:"name"`
	Mode Mode   `json:"mode"`
	// SizeBytes of the claim, 0 if unknown: a device that is smaller is refused.
	SizeBytes int64 `json:"sizeBytes,omitempty"`
	// Tracking is how the storage is asked what of an exported disk need be read; nil reads all.
	Tracking *Tracking `json:"tracking,omitempty"`
	// ReadAll says why the storage is not asked, for the record.
	ReadAll string `json:"readAll,omitempty"`
}

// Tracking is a CSI driver's SnapshotMetadataService, and what it is asked.
type Tracking struct {
	// Address of the service, host:port.
	Address string `json:"address"`
	// CA holds the certificates to trust, in PEM.
	CA []byte `json:"ca"`
	// Token is the file below the folder of tokens that holds one of the service's audience.
	Token string `json:"token"`
	// Snapshot is the VolumeSnapshot of the disk, in the machine's namespace.
	Snapshot string `json:"snapshot"`
	// Base is the handle of the snapshot that the parent was read from; empty if there is
	// none, for the reason NoBase.
	Base   string `json:"base,omitempty"`
	NoBase string `json:"noBase,omitempty"`
	// Audit says why all is read and compared with what the storage tells; empty if not.
	Audit string `json:"audit,omitempty"`
}

// State is firmware state that was captured.
type State struct {
	// VolumeName that it has in the backup.
	VolumeName string `json:"volumeName"`
	// Digest that the captured state has and the exported state must have.
	Digest string `json:"digest"`
}

// Resolve opens one backup. Either Commit, or VMNamespace and VMName
// with ID.
type Resolve struct {
	Commit      *Commit `json:"commit,omitempty"`
	VMNamespace string  `json:"vmNamespace,omitempty"`
	VMName      string  `json:"vmName,omitempty"`
	// ID of a backup of that virtual machine: "latest", its sequence, the last part
	// of its key, or the first eight or more digits of its digest. Empty is latest.
	ID string `json:"id,omitempty"`
	// Unlock has the keys asked for; nil uses the mounted identities.
	Unlock *Unlock `json:"unlock,omitempty"`
}

// Unlock says what keys are asked for, of somebody who has an identity outside of the cluster.
type Unlock struct {
	// Restore is the UID of the object that the keys are for.
	Restore string `json:"restore"`
}

// Import fills fresh claims and reads them back.
type Import struct {
	// Commit to import from; nil for a backup without a store, of which only the
	// firmware state is written here.
	Commit *Commit `json:"commit,omitempty"`
	// Disks to fill. Their claims are mounted by the name of the volume.
	Disks []Disk `json:"disks,omitempty"`
	// State to write; nil if the backup has none.
	State *ImportState `json:"state,omitempty"`
	// Reader is the UID of the object that the commit is read for: what its pin is known by. Empty pins nothing.
	Reader string `json:"reader,omitempty"`
	// Unlock has the keys asked for; nil uses the mounted identities.
	Unlock *Unlock `json:"unlock,omitempty"`
}

// ImportState is how firmware state is written for the virtual machine to come.
type ImportState struct {
	// VolumeName in the backup; its new claim is mounted by that name.
	VolumeName string `json:"volumeName"`
	// KeptVolume is the mounted claim that keepstate wrote; empty takes the state
	// from the commit.
	KeptVolume string `json:"keptVolume,omitempty"`
	// Digest that the state must have before it is changed; empty if unknown.
	Digest string `json:"digest,omitempty"`
	// From and To are the machine that was backed up and the one that is made.
	From Machine `json:"from"`
	To   Machine `json:"to"`
	// TPMPolicy is Keep or Blank.
	TPMPolicy string `json:"tpmPolicy"`
}

// Machine is what its firmware state depends on.
type Machine struct {
	VMName string `json:"vmName"`
	// FirmwareUUID as the guest sees it; it names the TPM's directory.
	FirmwareUUID  string `json:"firmwareUUID"`
	PersistentTPM bool   `json:"persistentTPM"`
	PersistentEFI bool   `json:"persistentEFI"`
}

// Catalogue lists one page of what a store holds.
type Catalogue struct {
	// After is the key that the page begins behind; empty for the first page.
	After string `json:"after,omitempty"`
	// Limit bounds the records of the page.
	Limit int `json:"limit"`
}

// Maintain removes from a store what nothing needs any more.
type Maintain struct {
	// Remove are backups that are to go, whether or not they are the newest: somebody deleted them.
	Remove []Commit `json:"remove,omitempty"`
	// Known are backups that must be there; where one is not, nothing is deleted.
	Known []Commit `json:"known,omitempty"`
	// Lost are commits and runs that somebody says are lost: their absence holds nothing up.
	Lost []string `json:"lost,omitempty"`
	// Alive are the backups whose sessions are kept.
	Alive []Writer `json:"alive,omitempty"`
	// Readers are the UIDs of the restores whose sessions are kept.
	Readers []string `json:"readers,omitempty"`
	// Ended are sessions that the pass before saw, of nobody that was known: they are ended
	// unless they are of somebody alive.
	Ended []string `json:"ended,omitempty"`
	// IntervalSeconds for which something must have been of no use.
	IntervalSeconds int64 `json:"intervalSeconds"`
	// KeySecretName is the Secret in the pod's namespace that the maintenance key is kept in.
	KeySecretName string `json:"keySecretName"`
}

// Writer is a backup that may be at work.
type Writer struct {
	VMUID     string `json:"vmUID"`
	BackupUID string `json:"backupUID"`
}

// Verify reads back a part of what a store holds.
type Verify struct {
	// Cursor that the run before returned.
	Cursor string `json:"cursor,omitempty"`
	// Parts that a round has.
	Parts int `json:"parts"`
	// BytesPerSecond bounds how fast is read; 0 does not.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
}

// KeepState copies the firmware state from the witness's Secrets into a claim.
type KeepState struct {
	// Volume is the mounted claim.
	Volume string `json:"volume"`
	// Digest that the captured state must have.
	Digest string `json:"digest"`
}

// Encode returns c for the environment of a Job.
func (c Config) Encode() ([]byte, error) {
	return json.Marshal(c)
}

// Decode reads what Encode wrote, strictly (package task).
func Decode(b []byte) (Config, error) {
	var c Config
	if err := task.Decode(b, "mover", &c); err != nil {
		return Config{}, err
	}
	return c, nil
}
