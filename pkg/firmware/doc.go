// Package firmware reads, checks, changes and writes the firmware state of a
// virtual machine: its vTPM and its EFI variables, as KubeVirt keeps them in the
// volume of the claim labelled persistent-state-for=<vm>. It knows files and
// formats, and no Kubernetes.
//
// # Layout of the volume
//
//	nvram/<vm>_VARS.fd                    EFI variables, named after the VM
//	swtpm/<firmware UUID>/tpm2/           the TPM's directory, named after the UUID
//	    tpm2-00.permall                   its permanent state, replaced as a whole by rename
//	    tpm2-00.volatilestate             only after a migration; never restored, since a cold
//	                                      start would resume PCRs of another boot from it
//	swtpm-localca/                        the authority that signed the TPM's certificates
//	meta/migrated                         a mark that the state has moved to another volume
//	cbt/                                  changed block tracking of the disks; not firmware
//	                                      state, and written with every disk write: never read
//
// # The way of the state
//
//	volume   ──Read──►      Snapshot{Tree, Reading, Skipped}
//	Reading  ──Compare──►   what changed since an earlier Reading
//	Tree     ──Check──►     Facts and Findings: is this the VM's state, and is it whole
//	Tree     ──Pack──►      chunks for Secrets ──Unpack──► the same Tree
//	Tree     ──Transform──► a Tree for another name, UUID or TPM policy
//	Tree     ──Write──►     a volume, ──Verify──► read back
//
// # Canonical encodings
//
// Digests are SHA-256 in lower-case hexadecimal. A string or byte field is its
// length as unsigned varint and then its bytes; a number is an unsigned varint (a
// signed one is taken as its two's complement).
//
//	Tree     "vmstate.io/firmware-tree/v1", number of entries, and for each entry by
//	         path: path, type ("d" or "f"), mode, uid, gid, mtime, number of xattrs,
//	         name and value of each xattr by name, SHA-256 of the content
//	Reading  "vmstate.io/firmware-reading/v1", number of files, and for each file by
//	         path: path, inode, ctime, size, SHA-256 of the content as text
package firmware
