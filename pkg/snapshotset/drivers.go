package snapshotset

import "strings"

// Driver is what is known of one CSI driver and cannot be read from any API: a driver may serve
// group snapshots and still cut the members one after another.
type Driver struct {
	// Name of the driver, as in StorageClass.provisioner. A leading dot matches every name that
	// ends so: operators put a prefix of their own before it.
	Name string `json:"name"`
	// GroupsCutTogether says that the driver cuts all members of a group at one instant.
	GroupsCutTogether bool `json:"groupsCutTogether"`
	// Source says where that is known from.
	Source string `json:"source"`
}

// known drivers. What is not here is not known to cut together, and is refused unless an
// administrator attests it.
var known = []Driver{
	{Name: "cephfs.csi.ceph.com", GroupsCutTogether: true, Source: "ceph-csi 3.11: subvolume quiesce of Ceph Squid, crash-consistent within one file system"},
	{Name: ".cephfs.csi.ceph.com", GroupsCutTogether: true, Source: "ceph-csi under rook or ODF, as cephfs.csi.ceph.com"},
	{Name: "rbd.csi.ceph.com", GroupsCutTogether: true, Source: "ceph-csi 3.13: group snapshots of librbd (ceph/ceph-csi#4502)"},
	{Name: ".rbd.csi.ceph.com", GroupsCutTogether: true, Source: "ceph-csi under rook or ODF, as rbd.csi.ceph.com"},
	{Name: "linstor.csi.linbit.com", GroupsCutTogether: true, Source: "linstor-csi 1.9: I/O of all members is suspended"},
	{Name: "csi.trident.netapp.io", GroupsCutTogether: true, Source: "Trident 25.06: ONTAP consistency group snapshots within one SVM"},
	{Name: "hostpath.csi.k8s.io", GroupsCutTogether: false, Source: "csi-driver-host-path 1.18: copies one volume after another"},
	{Name: "driver.longhorn.io", GroupsCutTogether: false, Source: "longhorn/longhorn#13349: members are taken independently"},
}

// Knowledge of drivers: what an administrator says, then what is known.
type Knowledge struct{ attested []Driver }

// NewKnowledge puts what an administrator attests before what is known.
func NewKnowledge(attested []Driver) Knowledge { return Knowledge{attested: attested} }

// Of is what is known of a driver; false if nothing is.
func (k Knowledge) Of(driver string) (Driver, bool) {
	for _, list := range [][]Driver{k.attested, known} {
		for _, d := range list {
			if d.Name == driver || strings.HasPrefix(d.Name, ".") && strings.HasSuffix(driver, d.Name) {
				return d, true
			}
		}
	}
	return Driver{}, false
}
