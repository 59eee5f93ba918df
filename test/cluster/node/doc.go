// Package node is a machine made of namespaces: own mounts, processes, network, host name and control groups on the
// same kernel, with a small init of its own.
//
// Everything that kubelet, containerd and KubeVirt do to "their machine" happens in there, and one kill of the
// node's init ends all of it. Two things outlive the namespaces, loop devices and control groups; Clean removes
// them, whether the node was stopped, crashed or was killed half way up.
//
//	host                         node
//	vmstate0 10.20.0.1    veth   node0 10.20.0.10, cni0 10.244.0.1
//	STATE                 same   STATE, STATE/store (XFS with reflink, in the node only)
//	STATE/root/var/lib/x  bind   /var/lib/x, and other folders that the parts insist on
//
// The host reaches pods and services by routes over vmstate0, which vanish with the node. Nothing leads out of the
// node, so an accidental look-up or download fails at once.
package node

// Addresses of the node. The host's end of the link is HostIP.
const (
	HostIP      = "10.20.0.1"
	IP          = "10.20.0.10"
	PodCIDR     = "10.244.0.0/24"
	ServiceCIDR = "10.96.0.0/16"
	// Name is the node's host name, and its name in Kubernetes.
	Name = "node1"

	podGateway = "10.244.0.1/24"
	hostLink   = "vmstate0"
	nodeLink   = "node0"
	podBridge  = "cni0"
	group      = "vmstate" // folder in every cgroup hierarchy
)
