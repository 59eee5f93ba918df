package cluster

import (
	"encoding/json"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/vmstate/vmstate/test/cluster/node"
)

const (
	// metadataDriver is the instance of the CSI driver that tells what its snapshots hold. The others do not.
	metadataDriver = "reflink.csi.test"
	metadataPort   = 50051
)

// upMetadata starts the side car that serves snapshot metadata, and tells of it as a driver's vendor would. The token
// of a client must be meant for the driver.
func (c *Cluster) upMetadata() error {
	if err := c.applyCRDs("metadata"); err != nil {
		return err
	}
	if err := c.start("csi-snapshot-metadata", "--csi-address="+kubeletPlugins+metadataDriver+"/csi.sock",
		"--kubeconfig="+c.Kubeconfig(), "--port="+strconv.Itoa(metadataPort), "--disable-metrics",
		"--tls-cert="+c.pki("metadata.crt"), "--tls-key="+c.pki("metadata.key")); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.pki("metadata-ca.crt"))
	if err != nil {
		return err
	}
	address := net.JoinHostPort(node.IP, strconv.Itoa(metadataPort))
	service, err := json.Marshal(map[string]any{
		"apiVersion": "cbt.storage.k8s.io/v1beta1", "kind": "SnapshotMetadataService",
		"metadata": map[string]any{"name": metadataDriver},
		"spec":     map[string]any{"address": address, "audience": "snapshot-metadata." + metadataDriver, "caCert": ca},
	})
	if err != nil {
		return err
	}
	if err := c.apply("-", service); err != nil {
		return err
	}
	return until(30*time.Second, "the snapshot metadata service", func() (bool, error) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			return false, err
		}
		return true, conn.Close()
	})
}
