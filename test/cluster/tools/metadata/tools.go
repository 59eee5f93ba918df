//go:build tools

// Package metadata pins the side car that serves snapshot metadata. It has a build list of its own, with the versions
// of the control plane's: in that list it would make every part of Kubernetes another one.
package metadata

import _ "github.com/kubernetes-csi/external-snapshot-metadata/cmd/csi-snapshot-metadata"
