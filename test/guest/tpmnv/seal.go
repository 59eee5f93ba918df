package tpmnv

import (
	"fmt"

	"github.com/google/go-tpm/tpm2"
)

// Seal encrypts secret so that only this TPM gives it back. The two blobs are
// useless without the TPM's owner seed.
//
// They are bound to no PCR: PCR 7 differs between two builds of the same firmware,
// so a disk that was made under KubeVirt would not open on a host with another
// OVMF, though its state is whole. The loss of EFI variables shows in the
// generation that they carry.
func (t *TPM) Seal(secret []byte) (public, private []byte, err error) {
	root, err := t.storageRoot()
	if err != nil {
		return nil, nil, err
	}
	defer t.flush(root.Handle)
	r, err := tpm2.Create{
		ParentHandle: tpm2.AuthHandle{Handle: root.Handle, Name: root.Name, Auth: tpm2.PasswordAuth(nil)},
		InSensitive: tpm2.TPM2BSensitiveCreate{Sensitive: &tpm2.TPMSSensitiveCreate{
			Data: tpm2.NewTPMUSensitiveCreate(&tpm2.TPM2BSensitiveData{Buffer: secret}),
		}},
		InPublic: tpm2.New2B(tpm2.TPMTPublic{
			Type: tpm2.TPMAlgKeyedHash, NameAlg: tpm2.TPMAlgSHA256,
			ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, UserWithAuth: true, NoDA: true},
		}),
	}.Execute(t.conn)
	if err != nil {
		return nil, nil, fmt.Errorf("create sealed object: %w", err)
	}
	return tpm2.Marshal(r.OutPublic), tpm2.Marshal(r.OutPrivate), nil
}

// Unseal returns what was sealed; an error if another TPM sealed it.
func (t *TPM) Unseal(public, private []byte) ([]byte, error) {
	pub, err := tpm2.Unmarshal[tpm2.TPM2BPublic](public)
	if err != nil {
		return nil, fmt.Errorf("sealed public part: %w", err)
	}
	priv, err := tpm2.Unmarshal[tpm2.TPM2BPrivate](private)
	if err != nil {
		return nil, fmt.Errorf("sealed private part: %w", err)
	}
	root, err := t.storageRoot()
	if err != nil {
		return nil, err
	}
	defer t.flush(root.Handle)
	loaded, err := tpm2.Load{
		ParentHandle: tpm2.AuthHandle{Handle: root.Handle, Name: root.Name, Auth: tpm2.PasswordAuth(nil)},
		InPublic:     *pub, InPrivate: *priv,
	}.Execute(t.conn)
	if err != nil {
		return nil, fmt.Errorf("load sealed key (another TPM?): %w", err)
	}
	defer t.flush(loaded.ObjectHandle)
	u, err := tpm2.Unseal{
		ItemHandle: tpm2.AuthHandle{Handle: loaded.ObjectHandle, Name: loaded.Name, Auth: tpm2.PasswordAuth(nil)},
	}.Execute(t.conn)
	if err != nil {
		return nil, fmt.Errorf("unseal key: %w", err)
	}
	return u.OutData.Buffer, nil
}

// storageRoot derives the storage root key from the owner seed. A blank TPM has
// another seed, hence another key, and blobs sealed under the old one do not load.
func (t *TPM) storageRoot() (tpm2.NamedHandle, error) {
	r, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHOwner,
		InPublic:      tpm2.New2B(tpm2.ECCSRKTemplate),
	}.Execute(t.conn)
	if err != nil {
		return tpm2.NamedHandle{}, fmt.Errorf("derive storage root key: %w", err)
	}
	return tpm2.NamedHandle{Handle: r.ObjectHandle, Name: r.Name}, nil
}

// flush frees an object slot. swtpm without a resource manager has three; a flush
// that fails shows as the next command's error.
func (t *TPM) flush(h tpm2.TPMHandle) { _, _ = tpm2.FlushContext{FlushHandle: h}.Execute(t.conn) }
