// Package changedblocks asks a CSI driver which parts of a snapshot hold data, and which
// differ from an older snapshot, through the Kubernetes SnapshotMetadata service
// (KEP-3314, kubernetes-csi/external-snapshot-metadata).
//
// What is not in an answer will not be read, so an answer that may lack something is none.
// A stream breaks after ten minutes by its server's default, some drivers end one without
// an error when they stop early (csi-driver-host-path does), and nothing in a stream says that it is the
// last message. Hence an answer is complete only when the service, asked to go on behind
// the last range, ended without an error and had nothing more. A stream that breaks is
// taken up behind its last range. What stays incomplete is ErrIncomplete, and its caller
// reads more instead.
//
// Not even that proves a driver honest: an audit does (repository.Changes).
package changedblocks
