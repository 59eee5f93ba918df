package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Service is a program that the node's init keeps running.
type Service struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"`
	// Env is added to the init's own environment.
	Env []string `json:"env,omitempty"`
}

// Status is what the node's init knows of a service.
type Status struct {
	Name string `json:"name"`
	// PID is the process as the node sees it; 0 if it does not run now.
	PID int `json:"pid"`
	// Restarts counts how often the service ended by itself.
	Restarts int `json:"restarts"`
}

type request struct {
	Op      string  `json:"op"` // start, stop or list
	Service Service `json:"service"`
}

type response struct {
	Error    string   `json:"error,omitempty"`
	Services []Status `json:"services,omitempty"`
}

// restartDelay keeps a service that cannot start from filling its log.
const restartDelay = time.Second

type running struct {
	service  Service
	pid      int
	restarts int
}

// supervisor is process 1: it starts services, starts them again when they end, and reaps every orphan.
type supervisor struct {
	dir      Dir
	mu       sync.Mutex
	services map[string]*running
}

func supervise(d Dir) error {
	s := &supervisor{dir: d, services: map[string]*running{}}
	if err := os.Remove(d.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", d.socket())
	if err != nil {
		return err
	}
	go s.reap()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go s.serve(conn)
	}
}

func (s *supervisor) serve(conn net.Conn) {
	defer conn.Close()
	var q request
	if json.NewDecoder(conn).Decode(&q) != nil {
		return
	}
	answer := response{}
	var err error
	switch q.Op {
	case "start":
		err = s.start(q.Service)
	case "stop":
		err = s.stop(q.Service.Name)
	case "list":
		answer.Services = s.list()
	default:
		err = fmt.Errorf("there is no operation %q", q.Op)
	}
	if err != nil {
		answer.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(answer) // whoever asked has gone
}

func (s *supervisor) start(service Service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services[service.Name] != nil {
		return fmt.Errorf("service %q is there already", service.Name)
	}
	r := &running{service: service}
	if err := s.spawn(r); err != nil {
		return err
	}
	s.services[service.Name] = r
	return nil
}

// spawn is called with the lock held, so that reap learns of the process before it can look for it.
func (s *supervisor) spawn(r *running) error {
	name := s.dir.Log(r.service.Name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	argv := r.service.Argv
	process, err := os.StartProcess(argv[0], argv, &os.ProcAttr{
		Env:   append(os.Environ(), r.service.Env...),
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start %q: %w", r.service.Name, err)
	}
	r.pid = process.Pid
	return process.Release()
}

func (s *supervisor) stop(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.services[name]
	if r == nil {
		return fmt.Errorf("there is no service %q", name)
	}
	delete(s.services, name)
	if r.pid == 0 {
		return nil
	}
	return unix.Kill(r.pid, unix.SIGTERM)
}

func (s *supervisor) list() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Status
	for name, r := range s.services {
		all = append(all, Status{Name: name, PID: r.pid, Restarts: r.restarts})
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// reap waits for every child, the services and whatever was orphaned in the node.
func (s *supervisor) reap() {
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if errors.Is(err, unix.ECHILD) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err == nil {
			s.ended(pid)
		}
	}
}

func (s *supervisor) ended(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.services {
		if r.pid == pid {
			r.pid = 0
			r.restarts++
			time.AfterFunc(restartDelay, func() { s.restart(r) })
		}
	}
}

func (s *supervisor) restart(r *running) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.services[r.service.Name] != r || r.pid != 0 {
		return
	}
	if s.spawn(r) != nil {
		time.AfterFunc(restartDelay, func() { s.restart(r) })
	}
}
