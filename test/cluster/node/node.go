package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Words of the command line by which a program calls back into this package: see Hook.
const (
	launchWord = "node-launch"
	initWord   = "node-init"
	enterWord  = "node-enter"
)

// Hook must be called first by the main function of a program that calls Start. In the processes that Start makes of
// the same program it does their work and says so.
func Hook(args []string) (handled bool, err error) {
	if len(args) < 2 {
		return false, nil
	}
	switch args[0] {
	case launchWord:
		return true, launch(Dir(args[1]))
	case initWord:
		return true, RunInit(Dir(args[1]))
	case enterWord:
		return true, enter(Dir(args[1]), args[2:])
	default:
		return false, nil
	}
}

// Start cleans up after an earlier node in the same folder and starts a new one. program is the executable to run as
// the node's init; it must call Hook. It takes about a second.
func Start(d Dir, program string) error {
	if d.PID() != 0 {
		return errors.New("the node runs already")
	}
	if err := Clean(d); err != nil {
		return err
	}
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	if err := makeCgroups(); err != nil {
		return err
	}
	if err := d.makeFolders(binds); err != nil {
		return err
	}
	if err := os.Remove(d.Path(readyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := command(program, launchWord, string(d)); err != nil {
		return err
	}
	if err := connect(d.PID()); err != nil {
		return err
	}
	return waitReady(d)
}

// launch runs in a process of its own, which goes into the node's groups before the namespaces are made, so that
// the groups are the roots that the node sees. It ends when the init runs.
func launch(d Dir) error {
	if err := joinCgroups(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(d.Path("init.log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	child := exec.Command(self, initWord, string(d))
	child.Stdout, child.Stderr = log, log
	child.Dir = "/"
	child.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	child.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP,
	}
	if err := child.Start(); err != nil {
		return err
	}
	return d.savePID(child.Process.Pid)
}

// connect makes the link between host and node, and the host's routes over it.
func connect(pid int) error {
	if pid == 0 {
		return errors.New("the node's init ended at once")
	}
	for _, line := range []string{
		"link add " + hostLink + " type veth peer name " + nodeLink + " netns " + strconv.Itoa(pid),
		"addr add " + HostIP + "/24 dev " + hostLink,
		"link set " + hostLink + " up",
		"route add " + PodCIDR + " via " + IP,
		"route add " + ServiceCIDR + " via " + IP,
	} {
		if err := command("ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

func waitReady(d Dir) error {
	for range 300 {
		raw, err := os.ReadFile(d.Path(readyFile))
		if err == nil && string(raw) == "ok" {
			return nil
		}
		if err == nil && len(raw) > 0 {
			return errors.New(string(raw))
		}
		if d.PID() == 0 {
			return fmt.Errorf("the node's init ended, see %q", d.Path("init.log"))
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("the node is not up after 30 s, see %q", d.Path("init.log"))
}

// Clean ends the node, if it runs, and removes what it left on the host: loop devices, control groups, the
// link, and mount points that the host did not have. The files in the folder stay.
func Clean(d Dir) error {
	if pid := d.PID(); pid != 0 {
		d.thaw(pid)
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			return fmt.Errorf("end the node: %w", err)
		}
		for d.PID() != 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if _, err := net.InterfaceByName(hostLink); err == nil {
		_ = command("ip", "link", "del", hostLink) // it may have gone with the node since
	}
	if err := d.dropLoops(); err != nil {
		return err
	}
	dropCgroups()
	d.dropFolders()
	return nil
}

// StartService has the node's init run and supervise a program.
func StartService(d Dir, s Service) error {
	if !filepath.IsAbs(s.Argv[0]) {
		return fmt.Errorf("service %q: %q is not an absolute path", s.Name, s.Argv[0])
	}
	_, err := ask(d, request{Op: "start", Service: s})
	return err
}

// StopService ends a service and does not wait for it.
func StopService(d Dir, name string) error {
	_, err := ask(d, request{Op: "stop", Service: Service{Name: name}})
	return err
}

// Services lists what the node's init supervises.
func Services(d Dir) ([]Status, error) {
	answer, err := ask(d, request{Op: "list"})
	return answer.Services, err
}

func ask(d Dir, q request) (response, error) {
	conn, err := net.DialTimeout("unix", d.socket(), 5*time.Second)
	if err != nil {
		return response{}, fmt.Errorf("ask the node's init: %w", err)
	}
	defer conn.Close()
	if err := json.NewEncoder(conn).Encode(q); err != nil {
		return response{}, fmt.Errorf("ask the node's init: %w", err)
	}
	var answer response
	if err := json.NewDecoder(conn).Decode(&answer); err != nil {
		return response{}, fmt.Errorf("read the init's answer: %w", err)
	}
	if answer.Error != "" {
		return response{}, errors.New(answer.Error)
	}
	return answer, nil
}

// Command is a command that runs inside the node, in the present working folder. program must call Hook.
func Command(d Dir, program string, args ...string) *exec.Cmd {
	return exec.Command(program, append([]string{enterWord, string(d)}, args...)...)
}

// enter turns the calling process into a command inside the node.
func enter(d Dir, args []string) error {
	pid := d.PID()
	if pid == 0 {
		return errors.New("the node does not run")
	}
	if err := joinCgroups(); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	words := []string{"nsenter", "-t", strconv.Itoa(pid), "-m", "-p", "-n", "-i", "-u", "-C", "--wd=" + dir, "--"}
	return unix.Exec(path, append(words, args...), os.Environ())
}
