package samples

import (
	"slices"
	"strings"
)

type refusedCase struct {
	reason string
	yaml   string
	// secret must not come back in the refusal.
	secret string
	want   []refusal
}

// An identity as `kubectl vmstate keygen` prints it, of letters that open nothing.
const (
	identity   = "AGE-SECRET-KEY-PQ-1QQQSYQCYQ5RQWZQFPG9SCRGWPUGPZYSNZS23V9CCRYDPK8QARC0S7GQ3Z2"
	storeStart = `
kind: VMStateStore
spec:
  s3: {endpoint: "https://s3.example.com", bucket: vm-backups, credentialsSecretRef: {name: s3}}
  recipients: `
	s3Start = `
kind: VMStateStore
spec: {s3: {endpoint: "https://s3.example.com", bucket: vm-backups`
	restoreStart = `
kind: VMStateRestore
spec: `
)

var identityRefused = []refusal{
	{"spec", "Invalid value: each entry of recipients is an age recipient: age1pq1… (kubectl vmstate keygen makes one) or age1…"},
	{"spec", "Invalid value: recipients holds an identity (AGE-SECRET-KEY-…), which must never be in the cluster: " +
		"give the recipient (age1…) that belongs to it, and consider the identity leaked"},
}

func refusedCases() map[string]refusedCase {
	return map[string]refusedCase{
		"StoreWithoutRecipient": {
			reason: "a backup that nobody can read is none",
			yaml:   storeStart + `[]`,
			want:   []refusal{{"spec.recipients", "Invalid value: 0: spec.recipients in body should have at least 1 items"}},
		},
		"MoreMoversOnANodeThanAtAll": {
			reason: "a limit that bounds nothing is a slip",
			yaml:   storeStart + `[age1x]` + "\n  limits: {movers: 2, moversPerNode: 3}",
			want:   []refusal{{"spec.limits", "Invalid value: moversPerNode is more than movers, so that it would bound nothing: make it smaller, or leave it out"}},
		},
		"NegativeMovers": {
			reason: "0 is no limit; less is nothing",
			yaml:   storeStart + `[age1x]` + "\n  limits: {movers: -1}",
			want:   []refusal{{"spec.limits.movers", "Invalid value: -1: spec.limits.movers in body should be greater than or equal to 0"}},
		},
		"CommitWithoutStore": {
			reason: "a commit is in a store",
			yaml:   "kind: VMStateBackup\nspec: {vmName: db, commit: {key: c/x, digest: ab, sequence: 1}}",
			want:   []refusal{{"spec", "Invalid value: commit names a backup in a store: say which store with storeRef"}},
		},
		"StoreWithIdentity": {
			reason: "an identity in the cluster ends what encryption is for, and must not spread further by an error",
			yaml:   storeStart + `[` + identity + `]`,
			secret: identity,
			want:   identityRefused,
		},
		"StoreWithIdentityInLowerCase": {
			reason: "age accepts identities in lower case as well",
			yaml:   storeStart + `[` + strings.ToLower(identity) + `]`,
			secret: identity,
			want:   identityRefused,
		},
		"StoreWithIdentityTwice": {
			reason: "a list that the API server itself keeps unique repeats what is there twice",
			yaml:   storeStart + `[` + identity + `, ` + identity + `]`,
			secret: identity,
			want:   append(slices.Clone(identityRefused), refusal{"spec", "Invalid value: recipients names one recipient twice"}),
		},
		"StoreWithSomethingElse": {
			reason: "an SSH key is no age recipient of this product",
			yaml:   storeStart + `["ssh-ed25519 AAAA"]`,
			want:   []refusal{{"spec", "Invalid value: each entry of recipients is an age recipient: age1pq1… (kubectl vmstate keygen makes one) or age1…"}},
		},
		"StoreWithMixedRecipients": {
			reason: "age refuses to encrypt to both kinds",
			yaml:   storeStart + `[age1pq1abc, age1xyz]`,
			want:   []refusal{{"spec", "Invalid value: recipients mixes post-quantum (age1pq1…) and classic (age1…) recipients; age cannot encrypt one file to both kinds, so use one kind"}},
		},
		"StoreWithoutScheme": {
			reason: "whether the connection is encrypted must be said",
			yaml: `
kind: VMStateStore
spec:
  s3: {endpoint: s3.example.com, bucket: vm-backups, credentialsSecretRef: {name: s3}}
  recipients: [age1xyz]`,
			want: []refusal{{"spec.s3.endpoint", `Invalid value: "s3.example.com": spec.s3.endpoint in body should match '^https?://[^/\s]+$'`}},
		},
		"StoreWithoutCredentials": {
			reason: "nobody is nobody's user",
			yaml:   s3Start + `}, recipients: [age1xyz]}`,
			want:   []refusal{{"spec.s3", "Invalid value: s3 needs either credentials or, for short, credentialsSecretRef"}},
		},
		"StoreWithTwoCredentials": {
			reason: "two may be two users",
			yaml:   s3Start + `, credentials: {secretRef: {name: a}, instanceRole: {}}}, recipients: [age1xyz]}`,
			want:   []refusal{{"spec.s3.credentials", "Invalid value: credentials needs exactly one of secretRef, webIdentity and instanceRole"}},
		},
		"StoreWithCustomerKeyOverHTTP": {
			reason: "the key would be read on the way",
			yaml: `
kind: VMStateStore
spec: {s3: {endpoint: "http://s3.example.com", bucket: vm-backups, credentialsSecretRef: {name: s3}, serverSideEncryption: {type: SSE-C, customerKeySecretRef: {name: k}}}, recipients: [age1xyz]}`,
			want: []refusal{{"spec.s3", "Invalid value: with SSE-C the key goes with every request: the endpoint must be https"}},
		},
		"StoreWithKeyOfOtherEncryption": {
			reason: "a key that is not used is a mistake",
			yaml:   s3Start + `, credentialsSecretRef: {name: s3}, serverSideEncryption: {type: SSE-S3, kmsKeyID: k}}, recipients: [age1xyz]}`,
			want:   []refusal{{"spec.s3.serverSideEncryption", "Invalid value: kmsKeyID belongs to type SSE-KMS"}},
		},
		"BackupWithoutVM": {
			reason: "a backup is of one virtual machine",
			yaml:   "kind: VMStateBackup\nspec: {storeRef: {name: main}}",
			want:   []refusal{{"spec.vmName", "Required value"}},
		},
		"BackupWithLongPause": {
			reason: "a guest that is paused stays frozen",
			yaml:   "kind: VMStateBackup\nspec: {vmName: db, require: {maxPause: 31s}}",
			want: []refusal{{"spec", "Invalid value: require.maxPause is longer than freezeTimeoutSeconds: a guest that is paused stays frozen, " +
				"so raise freezeTimeoutSeconds, or set quiesce to Never"}},
		},
		"BackupWithEndlessPause": {
			yaml: "kind: VMStateBackup\nspec: {vmName: db, quiesce: Never, require: {maxPause: 301s}}",
			want: []refusal{{"spec.require.maxPause", `Invalid value: "301s": maxPause is at most 5m`}},
		},
		"BackupWithPauseWithoutUnit": {
			yaml: "kind: VMStateBackup\nspec: {vmName: db, require: {maxPause: \"2\"}}",
			want: []refusal{{"spec.require.maxPause", `Invalid value: "2": spec.require.maxPause in body should match '^([0-9]+(\.[0-9]+)?(ms|s|m))+$'`}},
		},
		"BackupWithUnknownQuiesce": {
			reason: "a typing error must not mean the default",
			yaml:   "kind: VMStateBackup\nspec: {vmName: db, quiesce: Always}",
			want:   []refusal{{"spec.quiesce", `Unsupported value: "Always": supported values: "IfAvailable", "Required", "Never"`}},
		},
		"RestoreWithoutSource": {
			reason: "of what, then",
			yaml:   restoreStart + `{mode: InPlace, source: {}}`,
			want:   []refusal{{"spec.source", "Invalid value: source needs either backupRef, or storeRef together with vm and commit"}},
		},
		"RestoreWithTwoSources": {
			reason: "two sources may differ",
			yaml:   restoreStart + `{mode: InPlace, source: {backupRef: {name: a}, storeRef: {name: main}, vm: prod/db}}`,
			want:   []refusal{{"spec.source", "Invalid value: source needs either backupRef, or storeRef together with vm and commit"}},
		},
		"RestoreFromStoreWithoutVM": {
			reason: "a store holds the backups of many",
			yaml:   restoreStart + `{mode: InPlace, source: {storeRef: {name: main}}}`,
			want:   []refusal{{"spec.source", "Invalid value: source.vm (namespace/name, as it was backed up) belongs to storeRef"}},
		},
		"RestoreOfNewVMWithoutName": {
			reason: "a new virtual machine needs a name",
			yaml:   restoreStart + `{mode: NewVM, source: {backupRef: {name: a}}}`,
			want:   []refusal{{"spec", "Invalid value: mode NewVM needs target.vmName"}},
		},
		"RestoreInPlaceWithTarget": {
			reason: "in place is the place of the backup",
			yaml:   restoreStart + `{mode: InPlace, source: {backupRef: {name: a}}, target: {vmName: b}}`,
			want:   []refusal{{"spec", "Invalid value: mode InPlace restores the virtual machine that was backed up; target belongs to mode NewVM"}},
		},
		"RestoreInPlaceWithBlankTPM": {
			reason: "disks of one moment with a TPM of none is what the product exists to prevent",
			yaml:   restoreStart + `{mode: InPlace, source: {backupRef: {name: a}}, tpmPolicy: Blank}`,
			want:   []refusal{{"spec", "Invalid value: mode InPlace keeps the firmware state of the backup; tpmPolicy Blank belongs to mode NewVM"}},
		},
		"RestoreInPlaceWithNewIdentity": {
			reason: "in place the guest meets the hardware that it knows",
			yaml:   restoreStart + `{mode: InPlace, source: {backupRef: {name: a}}, macAddresses: New}`,
			want:   []refusal{{"spec", "Invalid value: mode InPlace keeps firmware UUID and MAC addresses; New belongs to mode NewVM"}},
		},
	}
}

type changeCase struct {
	yaml, patch string
	want        []refusal
}

func changeCases() map[string]changeCase {
	return map[string]changeCase{
		"Backup": {
			yaml:  "kind: VMStateBackup\nmetadata: {name: b}\nspec: {vmName: db}",
			patch: `{"spec":{"vmName":"other"}}`,
			want:  []refusal{{"spec", "Invalid value: a backup's spec cannot be changed, but for deletionPolicy; create another VMStateBackup"}},
		},
		"BackupDeletionPolicy": {
			yaml:  "kind: VMStateBackup\nmetadata: {name: d}\nspec: {vmName: db}",
			patch: `{"spec":{"deletionPolicy":"Delete"}}`,
		},
		"BackupToALongerPause": {
			yaml:  "kind: VMStateBackup\nmetadata: {name: e}\nspec: {vmName: db}",
			patch: `{"spec":{"require":{"maxPause":"3s"}}}`,
			want:  []refusal{{"spec.require.maxPause", "Invalid value: \"3s\": a backup's spec cannot be changed, but for deletionPolicy; create another VMStateBackup"}},
		},
		"BackupToTheSamePause": {
			yaml:  "kind: VMStateBackup\nmetadata: {name: f}\nspec: {vmName: db, quiesce: Never, require: {maxPause: 1500ms}}",
			patch: `{"spec":{"require":{"maxPause":"1.5s"}}}`,
		},
		"BackupToACommit": {
			yaml:  "kind: VMStateBackup\nmetadata: {name: c}\nspec: {vmName: db, storeRef: {name: main}}",
			patch: `{"spec":{"commit":{"key":"c/x","digest":"y","sequence":1}}}`,
			want:  []refusal{{"spec", "Invalid value: a backup's spec cannot be changed, but for deletionPolicy; create another VMStateBackup"}},
		},
		"Restore": {
			yaml:  "kind: VMStateRestore\nmetadata: {name: r}\nspec: {mode: InPlace, source: {backupRef: {name: a}}}",
			patch: `{"spec":{"stopPolicy":"Stop"}}`,
			want:  []refusal{{"spec", "Invalid value: a restore's spec cannot be changed; create another VMStateRestore"}},
		},
		"StoreToOtherBucket": {
			yaml:  strings.Replace(storeStart, "kind: VMStateStore", "kind: VMStateStore\nmetadata: {name: s}", 1) + `[age1xyz]`,
			patch: `{"spec":{"s3":{"bucket":"elsewhere"}}}`,
			want:  []refusal{{"spec", "Invalid value: bucket and prefix of a store cannot be changed: the backups of this store are there; create another VMStateStore"}},
		},
		"StoreToOtherPrefix": {
			yaml:  strings.Replace(storeStart, "kind: VMStateStore", "kind: VMStateStore\nmetadata: {name: p}", 1) + `[age1xyz]`,
			patch: `{"spec":{"s3":{"prefix":"elsewhere"}}}`,
			want:  []refusal{{"spec", "Invalid value: bucket and prefix of a store cannot be changed: the backups of this store are there; create another VMStateStore"}},
		},
		"StoreWithLost": {
			yaml: strings.Replace(storeStart, "kind: VMStateStore", "kind: VMStateStore\nmetadata: {name: l}", 1) + `[age1xyz]`,
			patch: `{"spec":{"maintenance":{"credentialsSecretRef":{"name":"d"},"lost":[` +
				`"c/00112233445566778899aabbccddeeff/0000000007-ffeeddccbbaa99887766554433221100","r/00112233445566778899aabbccddeeff/ffeeddccbbaa99887766554433221100/"]}}}`,
		},
		"StoreWithLostPack": {
			yaml:  strings.Replace(storeStart, "kind: VMStateStore", "kind: VMStateStore\nmetadata: {name: k}", 1) + `[age1xyz]`,
			patch: `{"spec":{"maintenance":{"credentialsSecretRef":{"name":"d"},"lost":["r/00112233445566778899aabbccddeeff/ffeeddccbbaa99887766554433221100/p1-000000"]}}}`,
			want: []refusal{{"spec.maintenance.lost", "Invalid value: each entry of lost is the key of a backup's record (c/<machine>/<sequence>-<run>) " +
				"or the folder of a run (r/<machine>/<run>/), as status.maintenance.held names it"}},
		},
	}
}
