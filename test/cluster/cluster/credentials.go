package cluster

import (
	"os"

	"github.com/vmstate/vmstate/test/cluster/node"
	"github.com/vmstate/vmstate/test/cluster/pki"
)

const (
	apiServer  = "https://" + node.IP + ":6443"
	serviceAPI = "10.96.0.1" // the first address of the service range
)

// users are the kubeconfigs: file name, user name and groups.
var users = []struct {
	file string
	leaf pki.Leaf
}{
	{"admin", pki.Leaf{CommonName: "admin", Organizations: []string{"system:masters"}}},
	{"kube-controller-manager", pki.Leaf{CommonName: "system:kube-controller-manager"}},
	{"kube-scheduler", pki.Leaf{CommonName: "system:kube-scheduler"}},
	{"kubelet", pki.Leaf{CommonName: "system:node:" + node.Name, Organizations: []string{"system:nodes"}}},
	{"kube-proxy", pki.Leaf{CommonName: "system:kube-proxy"}},
}

// writeCredentials makes every key and certificate of the cluster, in the folders pki and kubeconfig.
func (c *Cluster) writeCredentials() error {
	for _, folder := range []string{"pki", "kubeconfig"} {
		if err := os.MkdirAll(c.dir.Path(folder), 0o755); err != nil {
			return err
		}
	}
	ca, authority, err := c.writeAuthority("ca")
	if err != nil {
		return err
	}
	_, frontProxy, err := c.writeAuthority("front-proxy-ca")
	if err != nil {
		return err
	}
	_, s3, err := c.writeAuthority("s3-ca")
	if err != nil {
		return err
	}
	_, metadata, err := c.writeAuthority("metadata-ca")
	if err != nil {
		return err
	}
	// Tokens are signed with a key that signs nothing else.
	if _, _, err := c.writeAuthority("service-account"); err != nil {
		return err
	}
	for _, l := range []struct {
		by   *pki.Authority
		file string
		leaf pki.Leaf
	}{
		{authority, "apiserver", pki.Leaf{CommonName: "kube-apiserver", Hosts: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			"localhost", "127.0.0.1", node.IP, serviceAPI,
		}}},
		{authority, "kubelet", pki.Leaf{CommonName: node.Name, Hosts: []string{node.Name, "127.0.0.1", node.IP}}},
		{authority, "kubelet-client", pki.Leaf{CommonName: "kube-apiserver", Organizations: []string{"system:masters"}}},
		{frontProxy, "front-proxy-client", pki.Leaf{CommonName: "front-proxy-client"}},
		{metadata, "metadata", pki.Leaf{CommonName: "snapshot-metadata", Hosts: []string{node.IP}}},
		{s3, "s3", pki.Leaf{CommonName: "s3", Hosts: []string{"localhost", "127.0.0.1", node.IP}}},
	} {
		pair, err := l.by.Issue(l.leaf)
		if err != nil {
			return err
		}
		if err := pair.Write(c.dir.Path("pki"), l.file); err != nil {
			return err
		}
	}
	return c.writeKubeconfigs(authority, ca)
}

func (c *Cluster) writeAuthority(name string) (pki.Pair, *pki.Authority, error) {
	authority, err := pki.NewAuthority(name)
	if err != nil {
		return pki.Pair{}, nil, err
	}
	pair, err := authority.Pair()
	if err != nil {
		return pki.Pair{}, nil, err
	}
	return pair, authority, pair.Write(c.dir.Path("pki"), name)
}

func (c *Cluster) writeKubeconfigs(authority *pki.Authority, ca pki.Pair) error {
	for _, u := range users {
		pair, err := authority.Issue(u.leaf)
		if err != nil {
			return err
		}
		raw, err := pki.Kubeconfig(apiServer, ca.Cert, pair)
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.dir.Path("kubeconfig", u.file), raw, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Kubeconfig is the administrator's kubeconfig. It works on the host and in the node.
func (c *Cluster) Kubeconfig() string { return c.dir.Path("kubeconfig", "admin") }
