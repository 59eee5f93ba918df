package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"
)

// installPriority makes the priority class that the pods of vmstate's Jobs name: without it admission refuses them.
func (c *Cluster) installPriority() error {
	root, err := Root()
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(root, "config", "rbac", "priority.yaml"))
	if err != nil {
		return err
	}
	class := &schedulingv1.PriorityClass{}
	if err := yaml.UnmarshalStrict(raw, class); err != nil {
		return fmt.Errorf("decode priority class: %w", err)
	}
	if err := c.Client.Create(context.Background(), class); err != nil {
		return fmt.Errorf("create priority class: %w", err)
	}
	return nil
}
