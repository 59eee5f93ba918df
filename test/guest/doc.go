// Package guest is the documentation of the test guest: a virtual machine whose
// whole purpose is to show whether its disk, its vTPM and its EFI variables are
// of one moment.
//
// The guest keeps one generation number in three places. One step writes them in
// a fixed order: disk, then TPM NV, then EFI variable. So whatever really existed
// at one moment satisfies
//
//	disk-1 <= efi <= tpm <= disk
//
// and what does not was put together from different moments. The copy on the disk
// is encrypted under a key that the TPM alone can unseal, so a disk without its
// own TPM does not open at all.
//
//	generation/   the number, its three encodings, and the rule above
//	pace/         how often the guest steps by itself
//	protocol/     first boot, check at boot, step; knows no device
//	tpmnv/        seal, unseal and the NV counter, on any TPM connection
//	init/         the guest: PID 1, console, QEMU guest agent
//	image/        builds the bootable disk image
//	statefolder/  a folder laid out like KubeVirt's state volume
//	inspect/      reads the three places from volumes, without booting
//	vm/           boots disk and state folder with qemu and swtpm, without KubeVirt
//	kubevirt/     the manifest of the guest as a KubeVirt VM
//	cmd/guest/    the command: image, inspect, boot, manifest, deps
//
// Debian 12 is expected on the host; `go run ./cmd/guest deps` installs what is
// missing. The packages themselves need no root, only `deps` does, and reading
// volumes that belong to another user.
package guest
