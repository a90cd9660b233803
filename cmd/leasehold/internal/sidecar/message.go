package sidecar

import (
	"encoding/gob"
	"io"
	"sync"
	"time"
)

// Operations of a request. Requests and reports go through two pipes as gob
// values, which keep the bytes of arguments that are no UTF-8.
const (
	opSetup  = "setup"  // first: Dir
	opStart  = "start"  // Child, Spec, Armed, By
	opSignal = "signal" // Child, Signal
	opHold   = "hold"   // Child, Armed, By
	opUntil  = "until"  // Until
)

// request is what the sidecar tells the keeper. Times are readings of the boot
// clock; both processes share it.
type request struct {
	Op     string
	Seq    uint64 // the answer has the same; 0: none is wanted
	Child  uint64
	Spec   *Spec
	Signal int
	Armed  bool
	By     time.Duration // 0: as long as the session
	Until  time.Duration // end of the session, as far as proven
	Dir    string        // removed when the sidecar is gone
}

// Operations of a report.
const (
	opStarted = "started" // Child, Pid
	opFailed  = "failed"  // Child, Code, Error: it could not be started
	opHeld    = "held"    // a hold has been carried out
	opExited  = "exited"  // Child, Code, Signal, Killed, Left
	opNote    = "note"    // Error: something that a person should know
)

// report is what the keeper tells the sidecar.
type report struct {
	Op     string
	Seq    uint64
	Child  uint64
	Pid    int
	Code   int
	Signal int
	Killed bool // at a deadline, by the keeper
	Left   int  // processes that could not be killed
	Error  string
}

// Spec is a command to start.
type Spec struct {
	Path  string   // as exec.LookPath found it
	Args  []string // with the name
	Env   []string
	Stdin bool // the sidecar's own; otherwise /dev/null
	Lines bool // output goes through line by line
	// Prefix of each line, if Lines.
	Prefix string
}

// outbox writes messages to a pipe without making anybody wait: the other end
// may be a stopped process. What it holds is bounded by the number of commands.
type outbox struct {
	w io.WriteCloser

	mu     sync.Mutex
	queue  []any
	closed bool
	wake   chan struct{}
}

func newOutbox(w io.WriteCloser) *outbox {
	return &outbox{w: w, wake: make(chan struct{}, 1)}
}

func (o *outbox) put(m any) {
	o.mu.Lock()
	if !o.closed {
		o.queue = append(o.queue, m)
	}
	o.mu.Unlock()
	o.signal()
}

// close lets run end when all has been written.
func (o *outbox) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.signal()
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes until close or the first error, and closes the pipe.
func (o *outbox) run() {
	defer o.w.Close()
	enc := gob.NewEncoder(o.w)
	for range o.wake {
		o.mu.Lock()
		queue, closed := o.queue, o.closed
		o.queue = nil
		o.mu.Unlock()
		for _, m := range queue {
			if enc.Encode(m) != nil {
				return // the other end is gone; its reader says so
			}
		}
		if closed {
			return
		}
	}
}
