package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/vmstate/vmstate/test/guest/generation"
	"github.com/vmstate/vmstate/test/guest/pace"
)

const (
	mib         = 1 << 20
	dataMiB     = 16 // of the partition DATA
	espSlackMiB = 3  // for FAT's own structures
	gptMiB      = 1  // before the first partition, and after the last one
	sparseBlock = 4096
)

// espFiles returns the ESP's content: path on the ESP to source file.
func espFiles(work, kernelPath, initramfs string, step pace.Pace) (map[string]string, error) {
	options := cmdline
	if step.On() {
		options += " vmstate.step=" + step.String()
	}
	loader := filepath.Join(work, "loader.conf")
	entry := filepath.Join(work, "guest.conf")
	err := errors.Join(
		os.WriteFile(loader, []byte("timeout 0\ndefault guest.conf\neditor no\nauto-entries no\nauto-firmware no\n"), 0o644),
		os.WriteFile(entry, []byte("title guest\nlinux /linux.efi\ninitrd /initramfs\noptions "+options+"\n"), 0o644))
	return map[string]string{
		"EFI/BOOT/BOOTX64.EFI":      systemdBoot,
		"linux.efi":                 kernelPath,
		"initramfs":                 initramfs,
		"loader/loader.conf":        loader,
		"loader/entries/guest.conf": entry,
	}, err
}

// writeDisk makes both partitions and puts them into a partitioned image.
func writeDisk(ctx context.Context, out string, files map[string]string) error {
	espMiB := espSlackMiB
	for _, source := range files {
		info, err := os.Stat(source)
		if err != nil {
			return fmt.Errorf("ESP: %w", err)
		}
		espMiB += int((info.Size() + mib - 1) / mib)
	}
	esp, data := out+".esp", out+".data"
	if err := writeESP(ctx, esp, espMiB, files); err != nil {
		return fmt.Errorf("ESP: %w", err)
	}
	if err := writeData(ctx, data); err != nil {
		return fmt.Errorf("partition %s: %w", generation.DataPartition, err)
	}
	if err := createSized(out, gptMiB+espMiB+dataMiB+gptMiB); err != nil {
		return err
	}
	err := run(ctx, "sgdisk", "-o",
		"-n", fmt.Sprintf("1:2048:+%dM", espMiB), "-t", "1:ef00", "-c", "1:ESP",
		"-n", fmt.Sprintf("2:0:+%dM", dataMiB), "-t", "2:8300", "-c", "2:"+generation.DataPartition, out)
	if err != nil {
		return err
	}
	return errors.Join(copySparse(out, esp, gptMiB*mib), copySparse(out, data, int64(gptMiB+espMiB)*mib))
}

func writeESP(ctx context.Context, path string, sizeMiB int, files map[string]string) error {
	if err := createSized(path, sizeMiB); err != nil {
		return err
	}
	if err := run(ctx, "mkfs.vfat", "-F", "16", "-n", "ESP", path); err != nil {
		return err
	}
	if err := run(ctx, "mmd", "-i", path, "::EFI", "::EFI/BOOT", "::loader", "::loader/entries"); err != nil {
		return err
	}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		if err := run(ctx, "mcopy", "-i", path, files[target], "::"+target); err != nil {
			return err
		}
	}
	return nil
}

// writeData makes the empty ext4. It is fully initialised now, so that the guest
// does not do it in the background and change the disk while it idles.
func writeData(ctx context.Context, path string) error {
	if err := createSized(path, dataMiB); err != nil {
		return err
	}
	return run(ctx, "mke2fs", "-q", "-t", "ext4", "-L", generation.DataPartition,
		"-O", "^metadata_csum,^huge_file", "-E", "lazy_itable_init=0,lazy_journal_init=0", path)
}

func createSized(path string, sizeMiB int) error {
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		return err
	}
	return os.Truncate(path, int64(sizeMiB)*mib)
}

// copySparse writes the file from into the file to at offset, leaving out zeros.
func copySparse(to, from string, offset int64) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	zero := make([]byte, sparseBlock)
	for block := range slices.Chunk(content, sparseBlock) {
		if !bytes.Equal(block, zero[:len(block)]) {
			if _, err := f.WriteAt(block, offset); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		offset += int64(len(block))
	}
	return f.Close()
}
