package sidecar

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
)

// KeeperCommand is the hidden command that makes a process the keeper.
const KeeperCommand = "run-keeper"

// KeeperEnv marks the keeper's process: it is started by a sidecar alone.
const KeeperEnv = "LEASEHOLD_KEEPER"

// childMark is the variable by which processes that left their group are known.
const childMark = "LEASEHOLD_CHILD"

const (
	// keeperPoll is how often the keeper looks at the boot clock: a single timer
	// would be late after a suspend.
	keeperPoll = 50 * time.Millisecond
	// buryFor is how long what a command left behind may take to die.
	buryFor = 2 * time.Second
	// reapEvery is how often orphans that have died are taken away.
	reapEvery = 500 * time.Millisecond
	// flushFor is how long the output of a command that has ended may take.
	flushFor = 200 * time.Millisecond
)

// Exit codes of a command that could not be started, as shells have them.
const (
	CodeNotExecutable = 126
	CodeNotFound      = 127
	CodeLostLease     = 75 // EX_TEMPFAIL: try again
)

// keeper is the parent of the commands.
type keeper struct {
	clock          bootclock.Clock
	self           int
	out            *outbox
	stdout, stderr *lines
	wake           chan struct{}
	scans          scans

	mu       sync.Mutex // held while a command is started: no unknown child is ours
	commands map[uint64]*command
	until    time.Duration
	dir      string
	orphans  bool          // there may be some to reap
	reapedAt time.Duration // when that was done last
}

// command is a child of the keeper.
type command struct {
	id     uint64
	pid    int           // and its group
	mark   string        // value of childMark
	armed  bool          // it works under a lease: the session limits its life
	by     time.Duration // a limit of its own; 0: none
	killed bool          // at a deadline
	over   bool          // it has ended
	output []*os.File
	copied sync.WaitGroup
}

// RunKeeper is the keeper's whole life. requests and reports are the pipes to
// the sidecar. It returns when nothing of what it started is left.
func RunKeeper(requests, reports *os.File) error {
	// A command that inherited one would keep the sidecar waiting for an end.
	syscall.CloseOnExec(int(requests.Fd()))
	syscall.CloseOnExec(int(reports.Fd()))
	// Signals of the terminal and of supervisors are for the sidecar. They are
	// caught, not ignored: what is ignored stays so in the commands.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	if err := adoptOrphans(); err != nil {
		return fmt.Errorf("become the parent of orphans: %w", err)
	}
	k := &keeper{
		clock:    bootclock.Boot(),
		self:     os.Getpid(),
		out:      newOutbox(reports),
		stdout:   &lines{w: os.Stdout},
		stderr:   &lines{w: os.Stderr},
		wake:     make(chan struct{}, 1),
		commands: make(map[uint64]*command),
	}
	go k.out.run()
	go k.watch(ended)
	// The death signal of the commands follows the thread that starts them, and
	// this one lives as long as the process.
	runtime.LockOSThread()
	dec := gob.NewDecoder(requests)
	for {
		var r request
		if err := dec.Decode(&r); err != nil {
			k.killEverything()
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read requests: %w", err)
		}
		k.handle(&r)
	}
}

func (k *keeper) handle(r *request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.commands[r.Child]
	switch r.Op {
	case opSetup:
		k.dir = r.Dir
	case opUntil:
		k.until = r.Until
	case opStart:
		k.start(r)
	case opSignal:
		if c != nil && !c.over {
			_ = syscall.Kill(-c.pid, syscall.Signal(r.Signal)) // it may have ended
		}
	case opHold:
		if c != nil {
			c.armed, c.by = r.Armed, r.By
		}
		k.out.put(report{Op: opHeld, Seq: r.Seq})
	}
	k.look()
}

// look has the deadlines looked at now.
func (k *keeper) look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// limit is until when a command may live; false: for ever.
func (k *keeper) limit(c *command) (time.Duration, bool) {
	switch {
	case !c.armed:
		return c.by, c.by != 0
	case c.by != 0:
		return min(c.by, k.until), true
	}
	return k.until, true
}

// start starts a command in a group of its own.
func (k *keeper) start(r *request) {
	c := &command{id: r.Child, armed: r.Armed, by: r.By}
	if at, ok := k.limit(c); ok && k.clock.Now() >= at {
		k.out.put(report{Op: opFailed, Seq: r.Seq, Child: c.id, Code: CodeLostLease, Error: "the lease has ended"})
		return
	}
	code, err := k.fork(c, r.Spec)
	if err != nil {
		k.out.put(report{Op: opFailed, Seq: r.Seq, Child: c.id, Code: code, Error: err.Error()})
		return
	}
	k.commands[c.id] = c
	k.out.put(report{Op: opStarted, Seq: r.Seq, Child: c.id, Pid: c.pid})
}

func (k *keeper) fork(c *command, spec *Spec) (code int, err error) {
	var ours []*os.File // closed here once the command has them
	defer func() {
		for _, f := range ours {
			f.Close()
		}
		if err != nil {
			for _, f := range c.output {
				f.Close()
			}
		}
	}()
	files := []uintptr{os.Stdin.Fd(), os.Stdout.Fd(), os.Stderr.Fd()}
	if !spec.Stdin {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return CodeNotExecutable, err
		}
		ours = append(ours, null)
		files[0] = null.Fd()
	}
	if spec.Lines {
		for i := 1; i <= 2; i++ {
			r, w, err := os.Pipe()
			if err != nil {
				return CodeNotExecutable, err
			}
			c.output = append(c.output, r)
			ours = append(ours, w)
			files[i] = w.Fd()
		}
	}
	for _, v := range spec.Env {
		if value, ok := cutEnv(v, childMark); ok {
			c.mark = value
		}
	}
	c.pid, err = syscall.ForkExec(spec.Path, spec.Args, &syscall.ProcAttr{Env: spec.Env, Files: files, Sys: groupOfItsOwn()})
	if err != nil {
		if errors.Is(err, syscall.ENOENT) {
			return CodeNotFound, err
		}
		return CodeNotExecutable, err
	}
	for i, r := range c.output {
		to := []*lines{k.stdout, k.stderr}[i]
		c.copied.Go(func() { to.copy(spec.Prefix, r) })
	}
	return 0, nil
}

// watch looks at deadlines and at commands that have ended.
func (k *keeper) watch(ended <-chan os.Signal) {
	died := false
	for {
		timer := time.NewTimer(k.round(died))
		died = false
		select {
		case <-k.wake:
		case <-ended:
			died = true
		case <-timer.C:
		}
		timer.Stop()
	}
}

// round does what is due and returns how long nothing else will be. died says
// that some child of this process has ended.
func (k *keeper) round(died bool) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	now, wait := k.clock.Now(), time.Second
	var due []*command
	for _, c := range k.commands {
		if c.over {
			continue
		}
		if exited, reaped, status := hasExited(c.pid); exited {
			c.over = true
			go k.bury(c, reaped, status)
			continue
		}
		at, limited := k.limit(c)
		switch {
		case !limited:
		case now >= at:
			due = append(due, c)
			wait = min(wait, keeperPoll) // it is dying
		default:
			wait = min(wait, keeperPoll, at-now)
		}
	}
	k.kill(due)
	k.orphans = k.orphans || died
	if rest := k.reapedAt + reapEvery - now; k.orphans && rest <= 0 {
		k.orphans, k.reapedAt = false, now
		k.reapOrphans()
	} else if k.orphans {
		wait = min(wait, rest)
	}
	return max(wait, time.Millisecond)
}

// kill kills commands and all that is below them, as far as it is still to be
// found from there. One look at the process table must do for all: a lease's end
// may be that of hundreds.
func (k *keeper) kill(due []*command) {
	if len(due) == 0 {
		return
	}
	all := processes()
	for _, c := range due {
		c.killed = true
		below := descendants(all, c.pid)
		killGroup(c.pid)
		killAll(below)
	}
}

// bury kills what a command has left behind, and reports its end when nothing
// of it is left: then the lease may go.
func (k *keeper) bury(c *command, reaped bool, status syscall.WaitStatus) {
	killGroup(c.pid)
	strays, undead := 0, 0
	for until := k.clock.Now() + buryFor; ; {
		left := k.leftovers(c)
		if len(left) == 0 {
			break
		}
		if k.clock.Now() >= until {
			undead = len(left)
			k.out.put(report{Op: opNote, Child: c.id, Error: fmt.Sprintf("%d processes could not be killed, such as %d", len(left), left[0])})
			break
		}
		strays = max(strays, len(left))
		killAll(left)
		time.Sleep(2 * time.Millisecond)
	}
	if strays > 0 {
		k.out.put(report{Op: opNote, Child: c.id, Error: fmt.Sprintf("%d processes outlived the command and were killed", strays)})
	}
	k.flush(c)
	k.mu.Lock()
	for !reaped {
		got, err := syscall.Wait4(c.pid, &status, 0, nil)
		reaped = got == c.pid || err != nil && !errors.Is(err, syscall.EINTR)
	}
	delete(k.commands, c.id)
	k.mu.Unlock()
	r := report{Op: opExited, Child: c.id, Code: status.ExitStatus(), Killed: c.killed, Left: undead}
	if status.Signaled() {
		r.Signal = int(status.Signal())
		r.Code = 128 + r.Signal
	}
	k.out.put(r)
}

// flush waits for the rest of the output, which ends when nobody holds the pipe.
func (k *keeper) flush(c *command) {
	done := make(chan struct{})
	go func() {
		c.copied.Wait()
		close(done)
	}()
	timer := time.NewTimer(flushFor)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	for _, f := range c.output {
		f.Close()
	}
}

// leftovers are the live processes that belong to a command that has ended, or
// to nobody any more.
func (k *keeper) leftovers(c *command) []int {
	known, marks := make(map[int]bool), make(map[string]bool)
	look := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, other := range k.commands {
			known[other.pid] = true
			if other != c && !other.over {
				marks[other.mark] = true
			}
		}
	}
	// Before and after: a command may begin or end during the reading.
	look()
	all := k.scans.fresh()
	look()
	var found []int
	for _, p := range all {
		switch {
		case p.zombie || known[p.pid]:
		case p.group == c.pid:
			found = append(found, p.pid)
		case p.parent == k.self && !marks[startedWith(p.pid, childMark)]:
			found = append(append(found, p.pid), descendants(all, p.pid)...)
		}
	}
	return found
}

// reapOrphans takes away what has died of the orphans. The caller holds mu.
func (k *keeper) reapOrphans() {
	known := make(map[int]bool, len(k.commands))
	for _, c := range k.commands {
		known[c.pid] = true
	}
	for _, p := range processes() {
		if p.zombie && p.parent == k.self && !known[p.pid] {
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// killEverything is the end: the sidecar is gone.
func (k *keeper) killEverything() {
	k.mu.Lock() // and never unlocked: nothing else may start or be reported
	for _, c := range k.commands {
		killGroup(c.pid)
	}
	for until := k.clock.Now() + buryFor; k.clock.Now() < until; {
		left := descendants(processes(), k.self)
		if len(left) == 0 {
			break
		}
		killAll(left)
		time.Sleep(2 * time.Millisecond)
	}
	if k.dir != "" {
		_ = os.RemoveAll(k.dir) // the sidecar's own clean-up came first, or never
	}
}
