package controllers

import (
	"testing"

	"github.com/vmstate/vmstate/test/kube"
)

func TestMain(m *testing.M) {
	kube.Main(m, kube.KubeVirt, kube.ControllerManager, kube.SnapshotController)
}
