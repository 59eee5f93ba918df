package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/vmstate/vmstate/test/cluster/build"
	"github.com/vmstate/vmstate/test/cluster/node"
	"github.com/vmstate/vmstate/test/cluster/ociimage"
)

// stage is one step of Up.
type stage struct {
	level Level
	name  string
	do    func(*Cluster) error
	last  bool // the level is reached with this one
}

func stages() []stage {
	return []stage{
		{ControlPlane, "node namespaces, storage, certificates", (*Cluster).upNode, false},
		{ControlPlane, "API server ready", (*Cluster).upControlPlane, true},
		{CSI, "node Ready", (*Cluster).upKubelet, false},
		{CSI, "CSI driver and snapshots ready", (*Cluster).upCSI, false},
		{CSI, "snapshot metadata service ready", (*Cluster).upMetadata, false},
		{CSI, "S3 server ready", (*Cluster).upS3, true},
		{KubeVirt, "KubeVirt images imported", (*Cluster).upImages, false},
		{KubeVirt, "KubeVirt deployed", (*Cluster).upKubeVirt, true},
	}
}

func (c *Cluster) upNode() error {
	if err := node.Start(c.dir, c.program); err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir.Path("csi"), 0o755); err != nil {
		return err
	}
	return c.writeCredentials()
}

func (c *Cluster) upControlPlane() error {
	if err := errors.Join(c.startEtcd(), c.startAPIServer()); err != nil {
		return err
	}
	client, err := trusting(c.pki("ca.crt"))
	if err != nil {
		return err
	}
	if err := until(time.Minute, "the API server", func() (bool, error) { return healthy(client, apiServer+"/readyz") }); err != nil {
		return err
	}
	return c.startControllerManager()
}

// trusting is a client that trusts one authority.
func trusting(ca string) (*http.Client, error) {
	raw, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%q holds no certificate", ca)
	}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
	}, nil
}

func healthy(client *http.Client, url string) (bool, error) {
	answer, err := client.Get(url)
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return false, err
	}
	if answer.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s", answer.Status, body)
	}
	return true, nil
}

func (c *Cluster) upKubelet() error {
	if err := errors.Join(c.startScheduler(), c.startContainerd(), c.startKubeProxy()); err != nil {
		return err
	}
	if err := until(time.Minute, "containerd", func() (bool, error) {
		err := c.ctr("version")
		return err == nil, err
	}); err != nil {
		return err
	}
	if err := c.importArchive(ociimage.Archive{
		Files:  []ociimage.File{{Source: c.binary("box"), Path: "/box"}},
		Images: []ociimage.Image{{Name: build.BoxImage, Entrypoint: []string{"/box", "pause"}}},
	}); err != nil {
		return err
	}
	if err := c.startKubelet(); err != nil {
		return err
	}
	if err := c.untilPrinted(2*time.Minute, "True", "get", "node", node.Name, "-o",
		`jsonpath={.status.conditions[?(@.type=="Ready")].status}`); err != nil {
		return err
	}
	// virt-operator insists on a control plane node.
	_, err := c.kubectl("label", "--overwrite", "node", node.Name,
		"node-role.kubernetes.io/control-plane=", "node-role.kubernetes.io/worker=")
	return err
}

func (c *Cluster) upCSI() error {
	if err := c.applyCRDs("snapshot"); err != nil {
		return err
	}
	if err := c.startDrivers(); err != nil {
		return err
	}
	manifest, err := c.render("storage.yaml", "storage.yaml")
	if err != nil {
		return err
	}
	if err := c.apply(manifest, nil); err != nil {
		return err
	}
	for _, d := range drivers {
		if err := c.untilPrinted(time.Minute, d.name, "get", "csinode", node.Name, "-o", "jsonpath={.spec.drivers[*].name}"); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) upImages() error {
	archive, err := c.builder.Path(build.Images, build.KubeVirtArchive)
	if err != nil {
		return err
	}
	return c.ctr("images", "import", archive)
}

func (c *Cluster) upKubeVirt() error {
	const namespace = "kubevirt"
	manifest, err := c.render("kubevirt.yaml", "kubevirt.yaml")
	if err != nil {
		return err
	}
	operator, err := c.kubeVirtManifests(namespace)
	if err != nil {
		return err
	}
	if _, err := c.kubectl("create", "namespace", namespace); err != nil {
		return err
	}
	if _, err := c.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=privileged"); err != nil {
		return err
	}
	if err := c.apply("-", operator); err != nil {
		return err
	}
	if err := c.untilPrinted(30*time.Second, "True", "get", "crd", "kubevirts.kubevirt.io", "-o",
		`jsonpath={.status.conditions[?(@.type=="Established")].status}`); err != nil {
		return err
	}
	if err := c.apply(manifest, nil); err != nil {
		return err
	}
	return c.untilPrinted(10*time.Minute, "Deployed", "-n", namespace, "get", "kubevirt", "kubevirt", "-o", "jsonpath={.status.phase}")
}
