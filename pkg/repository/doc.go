// Package repository keeps backups of whole virtual machines in an object store.
//
// It knows no Kubernetes: a virtual machine is a namespace, a name and a UID, a
// volume is bytes. FORMAT.md is the format, exact to the byte.
//
//	Init ──► format.json, k/<epoch>.age           once a repository; again is harmless
//	OpenWithKeys ──► Begin ──► AddBlock, AddTree ──► Commit      write-only: reads no data
//	OpenWithIdentities ──► Commits, Commit, Latest ──► Open ──► RestoreBlock, ReadTree
//	either ──► Verify                              every pack read and proven, in parts
//
// A backup exists when its commit record does; that is created last, and only if
// its key is free. Begin with the same backup UID after a crash continues the same
// run: what an earlier attempt has stored and recorded is not sent again, and if
// the commit is there, Begin finds it.
//
// What is unchanged since the parent, by a keyed fingerprint a unit of 16 KiB, is
// not sent. Each backup is complete in itself all the same: its index trees reach
// every unit.
//
//	blockfile   disks as files and devices: holes, extents, sparse writing
//	keys        key set, recipients, identities; format.json and k/<epoch>.age
//	wire        the strict binary encoding that everything below is written in
//	frame       units, compressed and sealed together
//	index       the trees from unit to frame, and the pack and key tables
//	pack        the objects that hold frames and nodes
//	commit      the signed record of one backup, and the session that pins its parent
//	tree        small volumes of files: firmware state, documents
package repository
