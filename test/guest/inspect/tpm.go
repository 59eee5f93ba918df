package inspect

import (
	"context"
	"os"
	"path/filepath"

	"github.com/google/go-tpm/tpm2/transport"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/statefolder"
	"github.com/vmstate/vmstate/test/guest/swtpm"
	"github.com/vmstate/vmstate/test/guest/tpmnv"
)

// readTPM starts swtpm on a copy of a state file and reads the NV memory.
func readTPM(ctx context.Context, work, permall string) (*generation.Mark, error) {
	dir := filepath.Join(work, "tpm")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(permall)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, statefolder.TPMFile), b, 0o600); err != nil {
		return nil, err
	}
	var mark *generation.Mark
	err = swtpm.With(ctx, dir, func(conn transport.TPM) error {
		mark, err = tpmnv.New(conn).Mark()
		return err
	})
	return mark, err
}
