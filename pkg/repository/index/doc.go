// Package index is the way from a place on a disk to the frame that holds it.
//
// A volume is units of 16 or 64 KiB; 64 units make a leaf; leaves hang in a tree
// with a fan-out of 256, as deep as the size asks for. All-zero parts have no node.
// A node is sealed, lies in an index pack, and is named by its parent with two
// hashes: one over contents, which moving data does not change, one over the sealed
// bytes. A new backup shares every node that it does not change.
//
//	Hasher   content id and fingerprint of a unit
//	Leaf     64 units: id, fingerprint, frame
//	Cursor   walks an existing tree in order, with few and large reads
//	Builder  makes a new tree in order, sharing the nodes of the old one
//	Table    the same trees over packs and data keys, by ordinal
package index
