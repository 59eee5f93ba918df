package controllers

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/pkg/action"
)

// doRestore carries out the actions of a restore.
func (e *executor) doRestore(_ context.Context, _ client.Object, a action.Action) error {
	return fmt.Errorf("no action is called %T", a)
}
