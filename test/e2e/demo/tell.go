package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// teller prints the story: numbered stages with what happens in them, and how long each took.
type teller struct {
	out    io.Writer
	total  int
	number int
	name   string
	begun  time.Time
	took   []string
}

// Stage ends the stage before and begins the next.
func (t *teller) Stage(format string, args ...any) {
	t.end()
	t.number++
	t.name, t.begun = fmt.Sprintf(format, args...), time.Now()
	fmt.Fprintf(t.out, "\n[%d/%d] %s\n", t.number, t.total, t.name)
}

// Say prints one line of what happens.
func (t *teller) Say(format string, args ...any) {
	fmt.Fprintf(t.out, "      %s\n", fmt.Sprintf(format, args...))
}

// Show prints what a command printed, under the command as a person would type it.
func (t *teller) Show(command, output string) {
	fmt.Fprintf(t.out, "      $ %s\n", command)
	for line := range strings.Lines(strings.TrimRight(output, "\n")) {
		fmt.Fprintf(t.out, "        %s", line)
	}
	fmt.Fprintln(t.out)
}

// end closes the stage under way.
func (t *teller) end() {
	if t.begun.IsZero() {
		return
	}
	took := time.Since(t.begun).Round(100 * time.Millisecond)
	t.took = append(t.took, fmt.Sprintf("%8.1f s  %s", took.Seconds(), t.name))
	t.begun = time.Time{}
}

// finish prints how long each stage took.
func (t *teller) finish() {
	t.end()
	fmt.Fprintln(t.out)
	for _, line := range t.took {
		fmt.Fprintln(t.out, line)
	}
}
