package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/vmstate/vmstate/pkg/repository/keys"
)

const aboutKeygen = `Makes a key pair: an identity that reads backups, and its recipient, which only encrypts.

The identity is written to a new file that only you can read; an existing file is never overwritten. It does not
belong into the cluster whose virtual machines are backed up, nor into the bucket: whoever has it can read every
backup, and without it nobody can, you included. Keep it in two places. The recipient goes into spec.recipients of a
VMStateStore; a second pair that is kept elsewhere makes the loss of one identity harmless.

Identities are age's hybrid post-quantum kind (ML-KEM-768 with X25519), so a copy of the bucket that is made today
stays closed to a quantum computer of tomorrow.`

func (a *app) keygenCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "keygen --output FILE",
		Short: "Make an identity that reads backups, and its recipient for a store",
		Long:  aboutKeygen,
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.keygen(output) },
	}
	cmd.Flags().StringVar(&output, "output", "", "file to write the identity to; it must not exist")
	return cmd
}

func (a *app) keygen(output string) error {
	if output == "" {
		return usagef("say with --output which file the identity goes to")
	}
	pair, err := keys.GenerateIdentity()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("# Identity of kubectl vmstate: whoever has this file can read the backups.\n# created: %s\n# public key: %s\n%s\n",
		time.Now().UTC().Format(time.RFC3339), pair.Recipient, pair.Secret)
	if err := writeNew(output, []byte(text)); err != nil {
		return err
	}
	a.note("identity written to %s", output)
	a.hint("keep it in two places, neither of them this cluster or the bucket: without it no backup can be read")
	a.hint("the recipient goes into spec.recipients of a VMStateStore, best beside a second one whose identity is kept elsewhere")
	if a.format == formatJSON {
		return a.printJSON(map[string]string{"file": output, "recipient": pair.Recipient, "fingerprint": keys.Fingerprint(pair.Recipient)})
	}
	fmt.Fprintln(a.out, pair.Recipient)
	return nil
}

// writeNew writes a file that only its owner can read, and never over another one.
func writeNew(name string, content []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		text := fmt.Sprintf("%s exists and is not overwritten: it may hold an identity that backups need", name)
		return &outcome{kind: fs.ErrExist, text: text, hint: "choose another --output", err: err}
	}
	if err != nil {
		return fmt.Errorf("write identity: %w", err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}
