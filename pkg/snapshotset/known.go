package snapshotset

// known is what is known of CSI drivers and cannot be read from any API. Each row says where it is known from. A
// driver that is not here is not known to cut the members of a group together; what an administrator says of a
// driver in the manager's configuration replaces its row.
var known = []Driver{
	{
		Name: "cephfs.csi.ceph.com", GroupsCutTogether: true, ClonesCopy: true,
		Source: "subvolume quiesce of Ceph Squid, within one file system (https://github.com/ceph/ceph-csi/releases/tag/v3.11.0); " +
			"a writable volume from a snapshot is a full copy (ceph-csi, docs/design/proposals/cephfs-snapshot-shallow-ro-vol.md)",
	},
	{Name: ".cephfs.csi.ceph.com", GroupsCutTogether: true, ClonesCopy: true, Source: "ceph-csi under rook or ODF, as cephfs.csi.ceph.com"},
	{Name: "rbd.csi.ceph.com", GroupsCutTogether: true, Source: "group snapshots of librbd (https://github.com/ceph/ceph-csi/pull/4502)"},
	{Name: ".rbd.csi.ceph.com", GroupsCutTogether: true, Source: "ceph-csi under rook or ODF, as rbd.csi.ceph.com"},
	{
		Name: "linstor.csi.linbit.com", GroupsCutTogether: true, RestoredTogetherLabel: "linstor.csi.linbit.com/consistency-group",
		Source: "I/O of all members is suspended (https://github.com/piraeusdatastore/linstor-csi/pull/374); " +
			"members of a consistency group are volumes of one resource (https://github.com/piraeusdatastore/linstor-csi/pull/469)",
	},
	{
		Name: "csi.trident.netapp.io", GroupsCutTogether: true,
		Source: "snapshots of one point in time within one SVM (https://docs.netapp.com/us-en/trident/trident-use/vol-group-snapshots.html)",
	},
	{Name: "driver.longhorn.io", Source: "each member is snapshotted by itself (https://github.com/longhorn/longhorn/issues/13349, https://github.com/longhorn/website/pull/1435)"},
	{Name: "hostpath.csi.k8s.io", ClonesCopy: true, Source: "copies one volume after another (https://github.com/kubernetes-csi/csi-driver-host-path, v1.18.0, pkg/hostpath/groupcontrollerserver.go)"},
	{Name: "ebs.csi.aws.com", NoGroups: true, Source: "https://github.com/kubernetes-sigs/aws-ebs-csi-driver/issues/2350"},
	{Name: "pd.csi.storage.gke.io", NoGroups: true, Source: "no GroupController in https://github.com/kubernetes-sigs/gcp-compute-persistent-disk-csi-driver (August 2026)"},
	{Name: "disk.csi.azure.com", NoGroups: true, Source: "no GroupController in https://github.com/kubernetes-sigs/azuredisk-csi-driver (August 2026)"},
	{Name: "topolvm.io", NoGroups: true, Source: "no GroupController in https://github.com/topolvm/topolvm (0.41)"},
	{Name: "csi.vsphere.vmware.com", NoGroups: true, Source: "no GroupController in https://github.com/kubernetes-sigs/vsphere-csi-driver (3.8.0-rc.1)"},
	{
		Name: "nfs.csi.k8s.io", NotInstant: true, NoGroups: true, MountsPerPod: true, ClonesCopy: true,
		Source: "a snapshot is a tar archive of the live folder, and volumes are mounted at publishing, without staging (https://github.com/kubernetes-csi/csi-driver-nfs)",
	},
	{Name: "smb.csi.k8s.io", NoSnapshots: true, MountsPerPod: true, Source: "no snapshots, and a CIFS client caches by mount (https://github.com/kubernetes-csi/csi-driver-smb)"},
	{Name: "efs.csi.aws.com", NoSnapshots: true, MountsPerPod: true, Source: "no snapshots (https://github.com/velero-io/velero/issues/4283); an NFS mount at publishing, without staging"},
	{Name: "csi.juicefs.com", MountsPerPod: true, Source: "a FUSE client, which may be one a pod (https://juicefs.com/docs/csi/introduction)"},
	{Name: "kubevirt.io.hostpath-provisioner", NoSnapshots: true, Source: "folders of a node, no snapshots (https://github.com/kubevirt/hostpath-provisioner)"},
}
