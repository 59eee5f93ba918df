package cluster

import (
	"github.com/vmstate/vmstate/test/cluster/node"
)

const (
	etcdURL         = "http://127.0.0.1:2379"
	kubeletPlugins  = "/var/lib/kubelet/plugins/"
	kubeletRegistry = "/var/lib/kubelet/plugins_registry/"
)

// drivers are the instances of the CSI driver.
var drivers = []struct {
	name      string
	snapshots bool
}{
	{"reflink.csi.test", true},
	{"other.csi.test", true},
	{"nosnap.csi.test", false},
}

func (c *Cluster) start(name string, args ...string) error {
	return c.startAs(name, name, args...)
}

func (c *Cluster) startAs(service, binary string, args ...string) error {
	return node.StartService(c.dir, node.Service{Name: service, Argv: append([]string{c.binary(binary)}, args...)})
}

func (c *Cluster) pki(name string) string        { return c.dir.Path("pki", name) }
func (c *Cluster) kubeconfig(name string) string { return c.dir.Path("kubeconfig", name) }

func (c *Cluster) startEtcd() error {
	return c.start("etcd", "--name=e", "--data-dir="+c.dir.Path("etcd"), "--listen-client-urls="+etcdURL,
		"--advertise-client-urls="+etcdURL, "--listen-peer-urls=http://127.0.0.1:2380",
		"--unsafe-no-fsync", "--log-level=warn")
}

func (c *Cluster) startAPIServer() error {
	return c.start("kube-apiserver",
		"--etcd-servers="+etcdURL,
		"--advertise-address="+node.IP,
		"--secure-port=6443",
		"--service-cluster-ip-range="+node.ServiceCIDR,
		"--tls-cert-file="+c.pki("apiserver.crt"),
		"--tls-private-key-file="+c.pki("apiserver.key"),
		"--client-ca-file="+c.pki("ca.crt"),
		"--service-account-key-file="+c.pki("service-account.crt"),
		"--service-account-signing-key-file="+c.pki("service-account.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--kubelet-client-certificate="+c.pki("kubelet-client.crt"),
		"--kubelet-client-key="+c.pki("kubelet-client.key"),
		"--kubelet-certificate-authority="+c.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file="+c.pki("front-proxy-client.crt"),
		"--proxy-client-key-file="+c.pki("front-proxy-client.key"),
		// There is no name server: webhooks and aggregated APIs are reached at their endpoints.
		"--enable-aggregator-routing=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--profiling=false")
}

func (c *Cluster) startControllerManager() error {
	k := c.kubeconfig("kube-controller-manager")
	return c.start("kube-controller-manager", "--kubeconfig="+k, "--authentication-kubeconfig="+k, "--authorization-kubeconfig="+k,
		"--leader-elect=false", "--use-service-account-credentials", "--profiling=false",
		"--service-account-private-key-file="+c.pki("service-account.key"), "--root-ca-file="+c.pki("ca.crt"),
		"--cluster-signing-cert-file="+c.pki("ca.crt"), "--cluster-signing-key-file="+c.pki("ca.key"))
}

func (c *Cluster) startScheduler() error {
	k := c.kubeconfig("kube-scheduler")
	return c.start("kube-scheduler", "--kubeconfig="+k, "--authentication-kubeconfig="+k, "--authorization-kubeconfig="+k,
		"--leader-elect=false", "--profiling=false")
}

func (c *Cluster) startContainerd() error {
	config, err := c.render("containerd.toml", "containerd.toml")
	if err != nil {
		return err
	}
	if _, err := c.render("cni.conflist", "cni", "10-vmstate-test.conflist"); err != nil {
		return err
	}
	return node.StartService(c.dir, node.Service{
		Name: "containerd", Argv: []string{c.binary("containerd"), "-c", config},
		// It looks for its shim there, and for runc behind.
		Env: []string{"PATH=" + c.builder.Assets() + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	})
}

func (c *Cluster) startKubeProxy() error {
	config, err := c.render("kube-proxy.yaml", "kube-proxy.yaml")
	if err != nil {
		return err
	}
	return c.start("kube-proxy", "--config="+config)
}

func (c *Cluster) startKubelet() error {
	config, err := c.render("kubelet.yaml", "kubelet.yaml")
	if err != nil {
		return err
	}
	return c.start("kubelet", "--config="+config, "--kubeconfig="+c.kubeconfig("kubelet"),
		"--hostname-override="+node.Name, "--node-ip="+node.IP, "--root-dir=/var/lib/kubelet", "-v=2")
}

// ControlFile is the control file of an instance of the CSI driver: see csireflink.Control.
func (c *Cluster) ControlFile(driver string) string { return c.dir.Path("csi", driver+".json") }

func (c *Cluster) startDrivers() error {
	for _, d := range drivers {
		socket := kubeletPlugins + d.name + "/csi.sock"
		err := c.startAs("csi-"+d.name, "csi-reflink", "--driver="+d.name, "--node="+node.Name,
			"--root="+c.dir.Path("store", d.name), "--socket="+socket, "--registration="+kubeletRegistry+d.name+"-reg.sock",
			"--control="+c.ControlFile(d.name))
		if err != nil {
			return err
		}
		common := []string{"--csi-address=" + socket, "--kubeconfig=" + c.Kubeconfig(), "--leader-election=false", "--extra-create-metadata"}
		if err := c.startAs("csi-provisioner-"+d.name, "csi-provisioner", append(common, "--default-fstype=ext4")...); err != nil {
			return err
		}
		if !d.snapshots {
			continue
		}
		if err := c.startAs("csi-snapshotter-"+d.name, "csi-snapshotter", common...); err != nil {
			return err
		}
	}
	return c.start("snapshot-controller", "--kubeconfig="+c.Kubeconfig(), "--leader-election=false")
}
