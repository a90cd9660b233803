package sidecar

import (
	"crypto/rand"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// When the keeper counts as stuck, and everything is killed without it.
const (
	// answerWithin is for a start, which may wait for hundreds of others.
	answerWithin = 30 * time.Second
	// buriedWithin is for the end of a command that has been killed.
	buriedWithin = 5 * time.Second
)

// errKeeper stands for a keeper that has ended or does not answer.
var errKeeper = errors.New("the keeper process has failed")

// StartError says that a command could not be started.
type StartError struct {
	Command string
	Code    int // 126 or 127, as shells have it
	Reason  string
}

// Error names the command and the reason.
func (e *StartError) Error() string { return fmt.Sprintf("start %q: %s", e.Command, e.Reason) }

// Exit is how a command ended.
type Exit struct {
	Code   int  // as a shell has it: 128 + signal for a signal
	Signal int  // 0 if none
	Killed bool // at a deadline
	Left   int  // processes that were left behind and could not be killed
}

// hands is the sidecar's end of the keeper. Its methods may be called from any
// goroutine.
type hands struct {
	cmd  *exec.Cmd
	out  *outbox
	log  *slog.Logger
	mark string
	scan scans
	dead chan struct{} // closed when the keeper has failed or has been dismissed
	gone chan struct{} // closed when its process has been reaped

	mu       sync.Mutex
	next     uint64
	children map[uint64]*child
	answers  map[uint64]chan report
	err      error
	closing  bool
}

// child is a command, as the sidecar sees it.
type child struct {
	h    *hands
	id   uint64
	pid  int
	done chan struct{} // closed when nothing of it is left
	exit Exit          // then
}

// hire starts the keeper. stdin is what a command with Spec.Stdin reads; nil:
// nothing.
func hire(executable string, stdin io.Reader, stdout, stderr io.Writer, log *slog.Logger) (*hands, error) {
	if err := adoptOrphans(); err != nil { // should the keeper die
		return nil, fmt.Errorf("become the parent of orphans: %w", err)
	}
	requests, toKeeper, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make pipe to keeper: %w", err)
	}
	defer requests.Close()
	fromKeeper, reports, err := os.Pipe()
	if err != nil {
		toKeeper.Close()
		return nil, fmt.Errorf("make pipe from keeper: %w", err)
	}
	defer reports.Close()
	h := &hands{
		cmd:      exec.Command(executable, KeeperCommand),
		out:      newOutbox(toKeeper),
		log:      log,
		mark:     rand.Text(),
		dead:     make(chan struct{}),
		gone:     make(chan struct{}),
		children: make(map[uint64]*child),
		answers:  make(map[uint64]chan report),
	}
	h.cmd.Stdin, h.cmd.Stdout, h.cmd.Stderr = stdin, stdout, stderr
	h.cmd.ExtraFiles = []*os.File{requests, reports}
	h.cmd.Env = append(inherited(os.Environ()), KeeperEnv+"=1")
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ^C is for the sidecar
	h.cmd.WaitDelay = time.Second
	if err := h.cmd.Start(); err != nil {
		toKeeper.Close()
		fromKeeper.Close()
		return nil, fmt.Errorf("start keeper: %w", err)
	}
	go h.out.run()
	go h.listen(fromKeeper)
	return h, nil
}

// listen takes the keeper's reports until it ends, and reaps it.
func (h *hands) listen(from *os.File) {
	defer close(h.gone)
	defer from.Close()
	dec := gob.NewDecoder(from)
	for {
		var r report
		if dec.Decode(&r) != nil {
			break
		}
		h.take(r)
	}
	h.fail(fmt.Errorf("%w: it has ended", errKeeper))
	_ = h.cmd.Wait() // how it ended makes no difference
}

func (h *hands) take(r report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.children[r.Child]
	switch {
	case r.Op == opNote:
		h.log.Warn(r.Error, "pid", pidOf(c))
	case c == nil:
	case r.Op == opStarted:
		c.pid = r.Pid
	case r.Op == opFailed:
		delete(h.children, r.Child)
	case r.Op == opExited:
		delete(h.children, r.Child)
		c.exit = Exit{Code: r.Code, Signal: r.Signal, Killed: r.Killed, Left: r.Left}
		close(c.done)
	}
	if answer := h.answers[r.Seq]; answer != nil {
		delete(h.answers, r.Seq)
		answer <- r
	}
}

func pidOf(c *child) int {
	if c == nil {
		return 0
	}
	return c.pid
}

// fail is the end of all commands when the keeper cannot see to it.
func (h *hands) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil || h.closing {
		return
	}
	h.err = err
	h.log.Error("killing all commands", "cause", err)
	_ = h.cmd.Process.Kill() // the kernel kills its children then
	for _, c := range h.children {
		killGroup(c.pid)
	}
	for _, p := range processes() {
		if m := startedWith(p.pid, childMark); len(m) > len(h.mark) && m[:len(h.mark)] == h.mark {
			killAll([]int{p.pid})
		}
	}
	for id, c := range h.children {
		delete(h.children, id)
		c.exit = Exit{Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL), Killed: true}
		close(c.done)
	}
	close(h.dead)
}

// failure is why the keeper has failed.
func (h *hands) failure() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// dismiss has the keeper kill what is left and waits for its end.
func (h *hands) dismiss() {
	h.mu.Lock()
	h.closing = true
	h.mu.Unlock()
	h.out.close()
	timer := time.NewTimer(buriedWithin)
	defer timer.Stop()
	select {
	case <-h.gone:
	case <-timer.C:
		_ = h.cmd.Process.Kill()
		<-h.gone
	}
}

// post sends a request and returns how to wait for its answer.
func (h *hands) post(r request) (answered func() (report, error)) {
	answer := make(chan report, 1)
	h.mu.Lock()
	h.next++
	r.Seq = h.next
	h.answers[r.Seq] = answer
	h.mu.Unlock()
	h.out.put(r)
	return func() (report, error) {
		timer := time.NewTimer(answerWithin)
		defer timer.Stop()
		select {
		case a := <-answer:
			return a, nil
		case <-h.dead:
		case <-timer.C:
			h.fail(fmt.Errorf("%w: it does not answer", errKeeper))
		}
		return report{}, h.failure()
	}
}

// start starts a command. If armed, it is killed at by until hold says
// otherwise.
func (h *hands) start(spec *Spec, armed bool, by time.Duration) (*child, error) {
	h.mu.Lock()
	if h.err != nil {
		h.mu.Unlock()
		return nil, h.err
	}
	h.next++
	c := &child{h: h, id: h.next, done: make(chan struct{})}
	h.children[c.id] = c
	h.mu.Unlock()

	marked := *spec
	marked.Env = withEnv(spec.Env, fmt.Sprintf("%s=%s-%d", childMark, h.mark, c.id))
	r, err := h.post(request{Op: opStart, Child: c.id, Spec: &marked, Armed: armed, By: by})()
	if err != nil {
		return nil, err
	}
	if r.Op == opFailed {
		return nil, &StartError{Command: spec.Args[0], Code: r.Code, Reason: r.Error}
	}
	return c, nil
}

// signal signals the command's process group.
func (c *child) signal(s syscall.Signal) {
	c.h.out.put(request{Op: opSignal, Child: c.id, Signal: int(s)})
}

// hold says whether the command works under a lease, which limits its life to the
// session's, and until when it may live at most; 0: no such limit. The returned function waits until the
// keeper has taken it in.
func (c *child) hold(armed bool, by time.Duration) (taken func() (report, error)) {
	return c.h.post(request{Op: opHold, Child: c.id, Armed: armed, By: by})
}
