package mover

// Roles of volumes, as they are recorded in a commit.
const (
	// RoleDisk is a disk of the guest.
	RoleDisk = "Disk"
	// RoleFirmwareState is the vTPM and the EFI variables.
	RoleFirmwareState = "FirmwareState"
	// RoleSpec is the documents that a restore needs.
	RoleSpec = "Spec"
)
