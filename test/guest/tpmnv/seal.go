package tpmnv

import (
	"fmt"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"
)

const nonceBytes = 16

// Seal encrypts secret so that only this TPM, with PCR 7 as it is now, gives it
// back. The two blobs are useless without the TPM's owner seed.
func (t *TPM) Seal(secret []byte) (public, private []byte, err error) {
	policy, err := t.pcr7Policy()
	if err != nil {
		return nil, nil, err
	}
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
			ObjectAttributes: tpm2.TPMAObject{FixedTPM: true, FixedParent: true, NoDA: true},
			AuthPolicy:       policy,
		}),
	}.Execute(t.conn)
	if err != nil {
		return nil, nil, fmt.Errorf("create sealed object: %w", err)
	}
	return tpm2.Marshal(r.OutPublic), tpm2.Marshal(r.OutPrivate), nil
}

// Unseal returns what was sealed. The error's text says at which of the two
// hurdles it ended: another TPM, or another PCR 7.
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
	auth := tpm2.Policy(tpm2.TPMAlgSHA256, nonceBytes, bindPCR7)
	u, err := tpm2.Unseal{
		ItemHandle: tpm2.AuthHandle{Handle: loaded.ObjectHandle, Name: loaded.Name, Auth: auth},
	}.Execute(t.conn)
	if err != nil {
		return nil, fmt.Errorf("unseal key (another PCR 7?): %w", err)
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

func (t *TPM) pcr7Policy() (tpm2.TPM2BDigest, error) {
	trial, end, err := tpm2.PolicySession(t.conn, tpm2.TPMAlgSHA256, nonceBytes, tpm2.Trial())
	if err != nil {
		return tpm2.TPM2BDigest{}, fmt.Errorf("trial policy session: %w", err)
	}
	policy, err := policyDigest(t.conn, trial.Handle())
	if endErr := end(); err == nil {
		err = endErr
	}
	return policy, err
}

func policyDigest(conn transport.TPM, session tpm2.TPMISHPolicy) (tpm2.TPM2BDigest, error) {
	if err := bindPCR7(conn, session, tpm2.TPM2BNonce{}); err != nil {
		return tpm2.TPM2BDigest{}, err
	}
	r, err := tpm2.PolicyGetDigest{PolicySession: session}.Execute(conn)
	if err != nil {
		return tpm2.TPM2BDigest{}, fmt.Errorf("policy digest: %w", err)
	}
	return r.PolicyDigest, nil
}

func bindPCR7(conn transport.TPM, session tpm2.TPMISHPolicy, _ tpm2.TPM2BNonce) error {
	_, err := tpm2.PolicyPCR{PolicySession: session, Pcrs: pcr7()}.Execute(conn)
	if err != nil {
		return fmt.Errorf("bind policy to PCR 7: %w", err)
	}
	return nil
}

func pcr7() tpm2.TPMLPCRSelection {
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{
		Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(7),
	}}}
}
