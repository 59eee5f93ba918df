package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/repository/keys"
)

const aboutRewrap = `Makes the backups that are in a store already readable for its present recipients: a store encrypts only what is
written after a recipient was added.

  kubectl vmstate rewrap main --identity old.key --endpoint … --bucket …        the recipients of VMStateStore main
  kubectl vmstate rewrap --identity old.key --recipient age1pq1… --dir copy

It needs an identity that opens the old backups and the right to write to the bucket, and only adds small key files,
so it works where objects are locked. It takes nothing away from recipients who were removed: whoever has had an
identity can read what was written for it. Recipients that a VMStateStore names are shown first, and you are asked:
whoever may change the store could have added one of his own.`

func (a *app) rewrapCommand() *cobra.Command {
	var recipients []string
	var yes bool
	cmd := &cobra.Command{
		Use:   "rewrap [STORE] --identity FILE",
		Short: "Make old backups readable for new recipients",
		Long:  aboutRewrap,
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !a.store.given():
				return usagef("say with --bucket or --dir where the backups are")
			case (len(args) == 1) == (len(recipients) > 0):
				return usagef("name a VMStateStore whose recipients are meant, or say --recipient")
			}
			return a.rewrap(cmd.Context(), args, recipients, yes)
		},
	}
	cmd.Flags().StringSliceVar(&recipients, "recipient", nil, "age recipient (age1…) that is to read the old backups")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	a.store.register(cmd.Flags())
	return cmd
}

func (a *app) rewrap(ctx context.Context, stores, recipients []string, yes bool) error {
	if len(stores) == 1 {
		_, s, err := a.openStore(ctx, stores[0])
		if err != nil {
			return err
		}
		recipients = s.Spec.Recipients
		if a.store.signingKey == "" {
			a.store.signingKey = s.Status.SigningKey
		}
		if err := a.agreeTo(s, yes); err != nil {
			return err
		}
	}
	to, err := keys.ParseRecipients(recipients)
	if err != nil {
		return err
	}
	repo, err := a.store.open(ctx)
	if err != nil {
		return err
	}
	done, err := repo.Rewrap(ctx, to)
	if err != nil {
		return fmt.Errorf("rewrap %s after %d runs: %w", a.store.place(), done.Runs, err)
	}
	if a.format == formatJSON {
		err = a.printJSON(map[string]int{"epochs": done.Epochs, "runs": done.Runs, "had": done.Had, "leftOut": len(done.LeftOut)})
	} else {
		fmt.Fprintf(a.out, "%d runs of %d key epochs open for %s; %d key files were there already\n", done.Runs, done.Epochs, keys.ShortList(recipients), done.Had)
	}
	if len(done.LeftOut) > 0 {
		err = errors.Join(err, fmt.Errorf("%d of the records in %s cannot be used and were left out: %w",
			len(done.LeftOut), a.store.place(), errors.Join(done.LeftOut...)))
	}
	return err
}

// agreeTo shows to whom all old backups are to be opened, and asks: who may change a store is not who may read them.
func (a *app) agreeTo(s *v1alpha1.VMStateStore, yes bool) error {
	fmt.Fprintf(a.err, "VMStateStore %s/%s names these recipients, who will read all that is in %s:\n", s.Namespace, s.Name, a.store.place())
	for _, r := range s.Spec.Recipients {
		fmt.Fprintf(a.err, "  %s\n", keys.Short(r))
	}
	if yes {
		return nil
	}
	return a.confirm("Open it for them?")
}
