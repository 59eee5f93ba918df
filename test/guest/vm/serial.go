package vm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"time"
)

// escapes are the terminal sequences that firmware and boot loader print.
var escapes = regexp.MustCompile("\x1b(\\[[=?0-9;]*[A-Za-z]|[()][A-Z0-9])")

// serial collects the console's lines.
type serial struct {
	conn  net.Conn
	qemu  *process
	start time.Time
	on    func(Line)

	mu      sync.Mutex
	lines   []Line
	next    int // first line that no expect has looked at
	changed chan struct{}
	closed  chan struct{}
}

func openSerial(ctx context.Context, qemu *process, socket string, start time.Time, on func(Line)) (*serial, error) {
	conn, err := qemu.dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("serial console: %w", err)
	}
	s := &serial{conn: conn, qemu: qemu, start: start, on: on, changed: make(chan struct{}, 1), closed: make(chan struct{})}
	go s.read()
	return s, nil
}

func (s *serial) read() {
	defer close(s.closed)
	in := bufio.NewReader(s.conn)
	for {
		text, err := in.ReadString('\n')
		if text = cleanLine(text); text != "" {
			s.add(Line{Text: text, At: time.Since(s.start), CPU: s.qemu.cpuTime()})
		}
		if err != nil {
			return
		}
	}
}

func cleanLine(raw string) string { return strings.TrimSpace(escapes.ReplaceAllString(raw, "")) }

func (s *serial) add(l Line) {
	s.mu.Lock()
	s.lines = append(s.lines, l)
	s.mu.Unlock()
	if s.on != nil {
		s.on(l)
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *serial) expect(ctx context.Context, re *regexp.Regexp) (Line, error) {
	for {
		if l, ok := s.take(re); ok {
			return l, nil
		}
		select {
		case <-s.changed:
		case <-s.closed:
			if l, ok := s.take(re); ok {
				return l, nil
			}
			return Line{}, fmt.Errorf("line %q: %w", re, ErrExited)
		case <-ctx.Done():
			return Line{}, fmt.Errorf("line %q: %w", re, context.Cause(ctx))
		}
	}
}

func (s *serial) take(re *regexp.Regexp) (Line, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.next < len(s.lines) {
		l := s.lines[s.next]
		s.next++
		if re.MatchString(l.Text) {
			return l, true
		}
	}
	return Line{}, false
}
