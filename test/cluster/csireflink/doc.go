// Package csireflink is a CSI driver for one node, for tests: volumes are sparse image files on a file system with
// reflink, and snapshots and clones are reflink copies of them.
//
//	Filesystem volume   image, loop device, ext4
//	Block volume        image, loop device
//
// A snapshot is one point in time of everything it covers, also across the volumes of a group: the driver first holds
// every volume (freezes its ext4, or stops the processes that write to its device), then copies all, then releases
// all. What a storage system does in its controllers is done here with the means of one kernel.
//
// What a snapshot holds, and what differs between two, is read from the extents that the kernel tells of: images that
// share a place on the device share their data.
//
// A control file can make the driver slow, unready, failing, half-failing or lying; see Control.
package csireflink
