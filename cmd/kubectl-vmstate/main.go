// Command kubectl-vmstate is what a person types: kubectl vmstate backup VM, list, show, restore, plan. With a store's
// bucket or directory and an age identity it also lists, shows and restores files without any cluster.
//
// Results go to stdout, everything else to stderr. Exit codes: 0 well, 1 failed, 2 wrong usage, 3 a backup is damaged,
// 4 not found.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

func run() int {
	// The first signal ends what is waited for in order; a second one kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr}
	err := a.command().ExecuteContext(ctx)
	if err == nil {
		return exitWell
	}
	if ctx.Err() != nil {
		err = errors.Join(errors.New("interrupted"), err)
	}
	explain(a.err, err)
	return exitCode(err)
}

// app is one call of the program: where it reads and writes, and the flags that several commands share.
type app struct {
	in       io.Reader
	answers  *bufio.Reader // of in, once something was asked
	out, err io.Writer
	format   string
	cluster  clusterFlags
	store    storeFlags
}

const about = `Backs up KubeVirt virtual machines whole: every disk and the firmware state (vTPM, EFI variables), of one moment.

With --bucket or --dir and --identity, list, show and restore-files work on a store alone, without a cluster.
Exit codes: 0 well, 1 failed, 2 wrong usage, 3 a backup is damaged, 4 not found.`

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "kubectl-vmstate",
		Short:         "Back up and restore KubeVirt virtual machines with their vTPM and EFI state",
		Long:          about,
		SilenceErrors: true,
		SilenceUsage:  true,
		// kubectl finds plugins by their file name, and people type the command with a space.
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl vmstate"},
		Args:        cobra.NoArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.format != formatText && a.format != formatJSON {
				return usagef("-o is text or json, not %q", a.format)
			}
			return nil
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%w", err) })
	root.CompletionOptions.HiddenDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVarP(&a.format, "format", "o", formatText, "what to print: text or json")
	a.cluster.register(flags)
	root.AddCommand(a.keygenCommand(), a.backupCommand(), a.listCommand(), a.showCommand(), a.restoreCommand(),
		a.unlockCommand(), a.importCommand(), a.proveCommand(), a.verifyCommand(), a.salvageCommand(),
		a.rewrapCommand(), a.rotateKeysCommand(), a.distrustCommand(), a.planCommand(), a.restoreFilesCommand())
	for _, c := range append(root.Commands(), root) {
		c.Args = usageArgs(c.Args)
	}
	return root
}

// usageArgs gives a wrong number of arguments the exit code of wrong usage.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%w; usage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// note says something on the way: what a result is not made of.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.err, "kubectl-vmstate: "+format+"\n", args...)
}

func (a *app) hint(format string, args ...any) { a.note("hint: "+format, args...) }
