package vm

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// askTimeout bounds one question to qemu or to the guest agent.
const askTimeout = 20 * time.Second

// qmp is qemu's machine protocol: one JSON object a line, answers in order, events
// in between.
type qmp struct {
	mu   sync.Mutex
	conn net.Conn
	in   *bufio.Reader
}

// answer is a line from qemu or from the guest agent.
type answer struct {
	Return json.RawMessage `json:"return"`
	Event  string          `json:"event"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

func openQMP(ctx context.Context, qemu *process, socket string) (*qmp, error) {
	conn, err := qemu.dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("qemu monitor: %w", err)
	}
	q := &qmp{conn: conn, in: bufio.NewReader(conn)}
	if _, err := q.in.ReadBytes('\n'); err != nil { // the greeting
		return q, fmt.Errorf("qemu monitor: %w", err)
	}
	_, err = q.execute(ctx, "qmp_capabilities")
	return q, err
}

func (q *qmp) execute(ctx context.Context, command string) (json.RawMessage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return ask(ctx, q.conn, q.in, command)
}

// askAgent opens the agent's socket for one question; one client holds it at a time.
func askAgent(ctx context.Context, qemu *process, socket, command string) (json.RawMessage, error) {
	conn, err := qemu.dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return ask(ctx, conn, bufio.NewReader(conn), command)
}

func ask(ctx context.Context, conn net.Conn, in *bufio.Reader, command string) (json.RawMessage, error) {
	deadline := time.Now().Add(askTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(conn, "{\"execute\":%q}\n", command); err != nil {
		return nil, err
	}
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		var a answer
		if err := json.Unmarshal(line, &a); err != nil {
			return nil, fmt.Errorf("answer %q: %w", line, err)
		}
		switch {
		case a.Event != "":
			continue
		case a.Error != nil:
			return nil, fmt.Errorf("%s: %s", a.Error.Class, a.Error.Desc)
		default:
			return a.Return, nil
		}
	}
}
