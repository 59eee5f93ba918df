package mover

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
	"github.com/vmstate/vmstate/pkg/repository"
)

// The members of a credentials Secret: ours, and those that other tools use.
var (
	accessKeyNames = []string{"accessKeyID", "AWS_ACCESS_KEY_ID", "accesskey", "access-key"}
	secretKeyNames = []string{"secretAccessKey", "AWS_SECRET_ACCESS_KEY", "secretkey", "secret-key"}
	tokenNames     = []string{"sessionToken", "AWS_SESSION_TOKEN"}
)

// customerKeyName is the member of a Secret with the key of SSE-C.
const customerKeyName = "customerKey"

// StoreOptions puts together what a Job is told of its store and what it has mounted.
// ErrMount names what is missing.
func StoreOptions(c config.Store, p Paths) (s3store.Options, error) {
	opt := s3store.Options{
		Endpoint: c.Endpoint, Bucket: c.Bucket, Prefix: c.Prefix, Region: c.Region, Proxy: c.Proxy,
		Addressing: s3store.Addressing(c.Addressing), Checksum: s3store.Checksum(c.Checksum),
		UploadBytesPerSecond: c.UploadBytesPerSecond, InstanceRole: c.InstanceRole,
	}
	if c.Lock != nil {
		opt.Lock = &s3store.Lock{
			Mode: objectstore.RetentionMode(c.Lock.Mode), Covers: repository.Locked,
			For: time.Duration(c.Lock.Days)*24*time.Hour + repository.Generation,
		}
	}
	if err := encryption(&opt, c, p); err != nil {
		return opt, err
	}
	if err := credentials(&opt, c, p); err != nil {
		return opt, fmt.Errorf("credentials of the store: %w", err)
	}
	if !c.CABundle {
		return opt, nil
	}
	bundle, err := readDir(p.CA)
	if err != nil {
		return opt, fmt.Errorf("CA bundle of the store: %w", err)
	}
	if opt.CABundle = bundle["ca.crt"]; len(opt.CABundle) == 0 {
		return opt, fmt.Errorf("CA bundle of the store: %w: it has no key ca.crt", ErrMount)
	}
	return opt, nil
}

// credentials says where they come from. A Secret is read now, so that what it lacks is
// said at once, and again while the Job runs.
func credentials(opt *s3store.Options, c config.Store, p Paths) error {
	switch {
	case c.InstanceRole:
		return nil
	case c.WebIdentity != nil:
		opt.WebIdentity = &s3store.WebIdentity{
			TokenFile: filepath.Join(p.WebIdentity, tokenFile), RoleARN: c.WebIdentity.RoleARN, Endpoint: c.WebIdentity.Endpoint,
		}
		return nil
	}
	opt.Reread = func() (s3store.Keys, error) { return readKeys(p.Credentials) }
	keys, err := opt.Reread()
	opt.AccessKeyID, opt.SecretAccessKey, opt.SessionToken = keys.AccessKeyID, keys.SecretAccessKey, keys.SessionToken
	return err
}

// tokenFile is the name of the token in its mount (job.TokenName).
const tokenFile = "token"

func readKeys(dir string) (k s3store.Keys, err error) {
	files, err := readDir(dir)
	if err != nil {
		return k, err
	}
	if k.AccessKeyID, err = member(files, accessKeyNames); err != nil {
		return k, err
	}
	if k.SecretAccessKey, err = member(files, secretKeyNames); err != nil {
		return k, err
	}
	k.SessionToken, _ = member(files, tokenNames) // only keys that end have one
	return k, nil
}

func member(files map[string][]byte, names []string) (string, error) {
	for _, name := range names {
		if value := strings.TrimSpace(string(files[name])); value != "" {
			return value, nil
		}
	}
	return "", fmt.Errorf("%w: the Secret has no key %s", ErrMount, names[0])
}

// encryption sets what the server is asked to do.
func encryption(opt *s3store.Options, c config.Store, p Paths) error {
	switch c.Encryption {
	case "":
		return nil
	case "SSE-S3":
		opt.Encryption = &s3store.Encryption{}
	case "SSE-KMS":
		opt.Encryption = &s3store.Encryption{KMS: true, KMSKeyID: c.KMSKeyID}
	case "SSE-C":
		key, err := customerKey(p.CustomerKey)
		if err != nil {
			return fmt.Errorf("customer key of the store (SSE-C): %w", err)
		}
		opt.Encryption = &s3store.Encryption{CustomerKey: key}
	default:
		return fmt.Errorf("%w: encryption %q of the store", ErrTask, c.Encryption)
	}
	return nil
}

// customerKey is 32 bytes, as they are or in base64.
func customerKey(dir string) ([]byte, error) {
	files, err := readDir(dir)
	if err != nil {
		return nil, err
	}
	key := files[customerKeyName]
	if len(key) == 32 {
		return key, nil
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(key)))
	if err != nil || len(decoded) != 32 {
		return nil, fmt.Errorf("%w: the key %s of the Secret is not 32 bytes, plain or in base64", ErrMount, customerKeyName)
	}
	return decoded, nil
}

// RootKey decodes the signing key that a store is pinned to; nil for none.
func RootKey(c config.Store) ([]byte, error) {
	if c.SigningKey == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(c.SigningKey)
	if err != nil {
		return nil, fmt.Errorf("%w: signing key of the store: %w", ErrTask, err)
	}
	return key, nil
}
