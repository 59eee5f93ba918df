package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

const barWidth = 28

// bar shows how far something is. On a terminal it is one line that is drawn again; elsewhere it is a line for each
// new step and each tenth of the way, so that a log can be read.
type bar struct {
	out      io.Writer
	terminal bool
	// columns of the terminal; 0 if they are not known.
	columns func() int
	now     func() time.Time

	step    string
	started time.Time
	first   int64 // bytes done when the step began
	tenth   int64
	drawn   bool
}

// reading is one state of what a bar shows.
type reading struct {
	// step under way, for a person.
	step string
	// done of total bytes; total 0 if it is not known.
	done, total int64
	// extra is said behind the numbers.
	extra string
}

func newBar(out io.Writer) *bar {
	file, ok := out.(*os.File)
	columns := func() int {
		width, _, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 0
		}
		return width
	}
	return &bar{out: out, terminal: ok && term.IsTerminal(int(file.Fd())), columns: columns, now: time.Now}
}

// show draws r.
func (b *bar) show(r reading) {
	news := r.step != b.step
	if news {
		b.step, b.started, b.first, b.tenth = r.step, b.now(), r.done, 0
	}
	if b.terminal {
		line := []rune(b.line(r))
		if width := b.columns(); width > 0 && len(line) >= width {
			line = line[:width-1] // a line that wraps cannot be drawn over
		}
		fmt.Fprintf(b.out, "\r\x1b[K%s", string(line))
		b.drawn = true
		return
	}
	tenth := int64(0)
	if r.total > 0 {
		tenth = r.done * 10 / r.total
	}
	if news || tenth > b.tenth {
		b.tenth = tenth
		fmt.Fprintln(b.out, b.line(r))
	}
}

// end leaves the last state on its line, so that what follows begins on a line of its own.
func (b *bar) end() {
	if b.drawn {
		fmt.Fprintln(b.out)
		b.drawn = false
	}
}

func (b *bar) line(r reading) string {
	parts := []string{fmt.Sprintf("%-16s", r.step)}
	if r.total > 0 {
		done := min(r.done, r.total)
		full := int(done * barWidth / r.total)
		parts = append(parts, strings.Repeat("█", full)+strings.Repeat("░", barWidth-full),
			fmt.Sprintf("%3d %%", done*100/r.total), size(done)+" of "+size(r.total))
		if b.terminal {
			parts = append(parts, b.pace(r)...)
		}
	}
	if r.extra != "" {
		parts = append(parts, r.extra)
	}
	return strings.TrimRight(strings.Join(parts, "  "), " ")
}

// pace is the speed and the time left, once they can be told.
func (b *bar) pace(r reading) []string {
	seconds := b.now().Sub(b.started).Seconds()
	moved := r.done - b.first
	if seconds < 2 || moved <= 0 {
		return nil
	}
	rate := float64(moved) / seconds
	parts := []string{size(int64(rate)) + "/s"}
	if left := float64(r.total-r.done) / rate; left >= 1 {
		parts = append(parts, clock(time.Duration(left*float64(time.Second)))+" left")
	}
	return parts
}

// clock is a duration as m:ss or h:mm:ss.
func clock(d time.Duration) string {
	s := int(d.Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
