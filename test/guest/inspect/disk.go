package inspect

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf16"

	"github.com/vmstate/vmstate/test/guest/generation"
)

// The GUID partition table (UEFI specification, chapter 5) on 512-byte sectors.
const (
	sectorBytes      = 512
	gptSignature     = "EFI PART"
	gptEntriesLBAAt  = 72
	gptEntryCountAt  = 80
	gptEntrySizeAt   = 84
	entryFirstLBAAt  = 32
	entryLastLBAAt   = 40
	entryNameAt      = 56
	entryBytes       = 128
	maxEntries       = 128
	maxDataPartition = 1 << 30
)

var (
	errNoGPT  = errors.New("no GUID partition table")
	errNoData = errors.New("no partition " + generation.DataPartition)
)

// readDisk reads the vault's header; nil if the disk holds no vault yet.
func readDisk(ctx context.Context, work, disk string) (*generation.Mark, error) {
	data := filepath.Join(work, "data.ext4")
	err := copyPartition(data, disk)
	if errors.Is(err, errNoGPT) {
		// A volume in file system mode: the image is a file in it.
		if disk, err = imageFromVolume(ctx, work, disk); err == nil {
			err = copyPartition(data, disk)
		}
	}
	if err != nil {
		return nil, err
	}
	volume, err := checkVolume(ctx, data)
	if err != nil {
		return nil, err
	}
	vault, err := volume.read(ctx, generation.VaultFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, err := generation.ReadVaultHeader(vault)
	return &m, err
}

func imageFromVolume(ctx context.Context, work, path string) (string, error) {
	volume, err := copyVolume(ctx, filepath.Join(work, "disk.ext4"), path)
	if err != nil {
		return "", fmt.Errorf("neither partitioned nor ext4: %w", err)
	}
	image := filepath.Join(work, diskFile)
	return image, volume.dump(ctx, diskFile, image)
}

// copyPartition copies the data partition of disk to the new file out.
func copyPartition(out, disk string) error {
	f, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	start, size, err := findPartition(f, generation.DataPartition)
	if err != nil {
		return err
	}
	return copyToFile(out, io.NewSectionReader(f, start, size))
}

func copyToFile(out string, r io.Reader) error {
	to, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, r)
	return errors.Join(err, to.Close())
}

// findPartition returns offset and length, in bytes, of the partition of that name.
func findPartition(disk io.ReaderAt, name string) (start, size int64, err error) {
	header := make([]byte, sectorBytes)
	if _, err := disk.ReadAt(header, sectorBytes); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	if !bytes.HasPrefix(header, []byte(gptSignature)) {
		return 0, 0, errNoGPT
	}
	count := binary.LittleEndian.Uint32(header[gptEntryCountAt:])
	if count > maxEntries || binary.LittleEndian.Uint32(header[gptEntrySizeAt:]) != entryBytes {
		return 0, 0, fmt.Errorf("unusual partition table (%d entries): %w", count, errNoGPT)
	}
	entries := make([]byte, count*entryBytes)
	at := int64(binary.LittleEndian.Uint64(header[gptEntriesLBAAt:])) * sectorBytes
	if _, err := disk.ReadAt(entries, at); err != nil {
		return 0, 0, fmt.Errorf("read partition table: %w", err)
	}
	for ; len(entries) > 0; entries = entries[entryBytes:] {
		if partitionName(entries[entryNameAt:entryBytes]) != name {
			continue
		}
		first := int64(binary.LittleEndian.Uint64(entries[entryFirstLBAAt:]))
		last := int64(binary.LittleEndian.Uint64(entries[entryLastLBAAt:]))
		size := (last - first + 1) * sectorBytes
		if first <= 0 || size <= 0 || size > maxDataPartition {
			return 0, 0, fmt.Errorf("partition %s of sectors %d to %d: %w", name, first, last, errNoData)
		}
		return first * sectorBytes, size, nil
	}
	return 0, 0, errNoData
}

func partitionName(field []byte) string {
	var units []uint16
	for ; len(field) >= 2; field = field[2:] {
		u := binary.LittleEndian.Uint16(field)
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	return string(utf16.Decode(units))
}
