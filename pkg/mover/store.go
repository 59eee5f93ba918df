package mover

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
)

// The members of a credentials Secret: ours, and those that other tools use.
var (
	accessKeyNames = []string{"accessKeyID", "AWS_ACCESS_KEY_ID", "accesskey", "access-key"}
	secretKeyNames = []string{"secretAccessKey", "AWS_SECRET_ACCESS_KEY", "secretkey", "secret-key"}
)

// StoreOptions puts together what a Job is told of its store and what it has mounted.
// ErrMount names what is missing.
func StoreOptions(c config.Store, p Paths) (s3store.Options, error) {
	opt := s3store.Options{
		Endpoint: c.Endpoint, Bucket: c.Bucket, Prefix: c.Prefix, Region: c.Region,
		Addressing: s3store.Addressing(c.Addressing), Checksum: s3store.Checksum(c.Checksum),
	}
	files, err := readDir(p.Credentials)
	if err != nil {
		return opt, fmt.Errorf("credentials of the store: %w", err)
	}
	if opt.AccessKeyID, err = member(files, accessKeyNames); err != nil {
		return opt, err
	}
	if opt.SecretAccessKey, err = member(files, secretKeyNames); err != nil {
		return opt, err
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

func member(files map[string][]byte, names []string) (string, error) {
	for _, name := range names {
		if value := strings.TrimSpace(string(files[name])); value != "" {
			return value, nil
		}
	}
	return "", fmt.Errorf("credentials of the store: %w: the Secret has no key %s", ErrMount, names[0])
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
