package bench

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/identity"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// WorkerCommand is the hidden command under which the binary hosts workers
// for a bench.
const WorkerCommand = "bench-worker"

// workerConfig is what a process of workers is told.
type workerConfig struct {
	Servers  string         `json:"servers"`
	Identity identity.Files `json:"identity,omitzero"`
	Workers  []string       `json:"workers"`
	Keyspace string         `json:"keyspace"` // which all of them run from the start
	Measured string         `json:"measured"` // the keyspace that notes are taken of
	Gossip   bool           `json:"gossip"`
	// Received: note when the library has received a lease with its token, and
	// nothing else: no handler of the measured keyspace starts, since a hundred
	// thousand goroutines would be measured instead.
	Received bool `json:"received"`
}

// Words on a process's standard input.
const (
	sayRun   = "run"   // K: every worker runs keyspace K too
	sayJoin  = "join"  // W: one more worker
	sayLeave = "leave" // W: that worker leaves for good
)

// Words on its standard output.
const (
	tellOpen   = "open"   // W: the session of W is acknowledged
	tellLeft   = "left"   // W: W has left
	tellFailed = "failed" // text: a Run returned an error
	tellNotes  = "notes"  // base64 of notes
)

// note is one thing that a library has told about a partition.
type note struct {
	Kind      noteKind
	Partition uint32
	Token     uint64
	At        time.Duration // boot clock
}

type noteKind uint8

const (
	// noteRunning is the first statement of the handler, or in a process that
	// was asked for that, when the library received the lease.
	noteRunning  noteKind = 1
	noteDraining noteKind = 2 // the handler heard that it shall hand over
)

const noteSize = 1 + 4 + 8 + 8

func appendNote(b []byte, n note) []byte {
	b = append(b, byte(n.Kind))
	b = binary.LittleEndian.AppendUint32(b, n.Partition)
	b = binary.LittleEndian.AppendUint64(b, n.Token)
	return binary.LittleEndian.AppendUint64(b, uint64(n.At))
}

// readNotes is the inverse of appendNote for any number of notes.
func readNotes(b []byte) ([]note, error) {
	if len(b)%noteSize != 0 {
		return nil, fmt.Errorf("read notes: %d bytes are no whole number of them", len(b))
	}
	notes := make([]note, 0, len(b)/noteSize)
	for ; len(b) > 0; b = b[noteSize:] {
		notes = append(notes, note{
			Kind: noteKind(b[0]), Partition: binary.LittleEndian.Uint32(b[1:]),
			Token: binary.LittleEndian.Uint64(b[5:]), At: time.Duration(binary.LittleEndian.Uint64(b[13:])),
		})
	}
	return notes, nil
}

// host is a process that hosts workers.
type host struct {
	cfg   workerConfig
	log   *slog.Logger
	clock bootclock.Clock

	wg sync.WaitGroup

	mu      sync.Mutex // guards what follows
	workers map[string]*worker.Worker
	spaces  []string
	out     io.Writer
	pending []byte // notes that wait for the next line
}

// flushEvery bounds how long a note waits. Its time was taken before.
const flushEvery = 5 * time.Millisecond

// RunWorkers hosts workers until its input ends or ctx is done. Goroutines:
// one that writes notes, one that reads in, one per worker and keyspace, and
// the library's.
func RunWorkers(ctx context.Context, raw string, in io.Reader, out io.Writer, log *slog.Logger) error {
	h := &host{log: log, clock: bootclock.Boot(), workers: map[string]*worker.Worker{}, out: out}
	if err := json.Unmarshal([]byte(raw), &h.cfg); err != nil {
		return fmt.Errorf("parse configuration of workers: %w", err)
	}
	h.spaces = []string{h.cfg.Keyspace}
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	flushed := make(chan struct{})
	stopFlush := make(chan struct{})
	go func() { defer close(flushed); h.flushLoop(stopFlush) }()
	for _, id := range h.cfg.Workers {
		h.join(ctx, id)
	}
	go func() {
		h.listen(ctx, in)
		gone(errors.New("driver is gone"))
	}()
	<-ctx.Done()
	h.wg.Wait()
	close(stopFlush)
	<-flushed
	return nil
}

// listen does what the driver says until the input ends.
func (h *host) listen(ctx context.Context, in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		word, arg, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case sayRun:
			h.mu.Lock()
			h.spaces = append(h.spaces, arg)
			for id, w := range h.workers {
				h.run(ctx, id, w, arg)
			}
			h.mu.Unlock()
		case sayJoin:
			h.join(ctx, arg)
		case sayLeave:
			h.leave(ctx, arg)
		default:
			h.log.Error("driver said an unknown word", "word", word)
		}
	}
}

// join starts a worker that runs all keyspaces named so far.
func (h *host) join(ctx context.Context, id string) {
	gossip := worker.GossipOff
	if h.cfg.Gossip {
		gossip = worker.GossipAuto
	}
	var open sync.Once
	tls, credential, err := h.cfg.Identity.Open()
	if err != nil {
		h.tell(tellFailed, fmt.Sprintf("%s: %v", id, err))
		return
	}
	w, err := worker.Join(ctx, worker.Config{
		TLS: tls, Credential: credential,
		Servers: h.cfg.Servers, ID: id, Gossip: gossip, Logger: h.log, Clock: h.clock, Version: "bench",
		Observer: &worker.Observer{
			Granted: func(l *worker.Lease, at time.Duration) {
				if h.cfg.Received {
					h.note(noteRunning, l, at)
				}
			},
			KeepAliveAcked: func(time.Duration) { open.Do(func() { h.tell(tellOpen, id) }) },
		},
	})
	if err != nil {
		h.tell(tellFailed, fmt.Sprintf("%s: join: %v", id, err))
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.workers[id] = w
	for _, space := range h.spaces {
		h.run(ctx, id, w, space)
	}
}

// run needs h.mu held.
func (h *host) run(ctx context.Context, id string, w *worker.Worker, space string) {
	h.wg.Go(func() {
		var opts []worker.Option
		if h.cfg.Received && space == h.cfg.Measured {
			opts = append(opts, worker.Claim(silent{}))
		}
		if err := w.Run(ctx, space, h.handle, opts...); err != nil && ctx.Err() == nil {
			h.tell(tellFailed, fmt.Sprintf("%s: run %s: %v", id, space, err))
		}
	})
}

// leave returns at once; the driver hears when it is done.
func (h *host) leave(ctx context.Context, id string) {
	h.mu.Lock()
	w := h.workers[id]
	delete(h.workers, id)
	h.mu.Unlock()
	if w == nil {
		h.tell(tellFailed, id+": leave: no such worker here")
		return
	}
	h.wg.Go(func() {
		if err := w.Leave(ctx); err != nil {
			h.tell(tellFailed, fmt.Sprintf("%s: leave: %v", id, err))
		}
		h.tell(tellLeft, id)
	})
}

// handle is the empty handler: it holds the partition and does nothing.
func (h *host) handle(ctx context.Context, l *worker.Lease) error {
	if !h.cfg.Received {
		h.note(noteRunning, l, h.clock.Now())
	}
	select {
	case <-l.Draining():
		if !h.cfg.Received {
			h.note(noteDraining, l, h.clock.Now())
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *host) note(kind noteKind, l *worker.Lease, at time.Duration) {
	if l.Keyspace() != h.cfg.Measured {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = appendNote(h.pending, note{Kind: kind, Partition: l.Partition(), Token: uint64(l.Token()), At: at})
}

// silent is a guard that does not answer: no handler starts.
type silent struct{}

// Claim implements fence.Guard.
func (silent) Claim(ctx context.Context, _ []fence.Stamp) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (h *host) tell(word, arg string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fmt.Fprintln(h.out, word, strings.ReplaceAll(arg, "\n", " "))
}

// flushLoop writes notes in lines, many at a time.
func (h *host) flushLoop(stop <-chan struct{}) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			h.flush()
			return
		case <-tick.C:
			h.flush()
		}
	}
}

func (h *host) flush() {
	const most = 40_000 // keeps a line below what the driver reads at once
	h.mu.Lock()
	notes := h.pending
	h.pending = nil
	h.mu.Unlock()
	for len(notes) > 0 {
		n := min(len(notes), most*noteSize)
		h.tell(tellNotes, base64.StdEncoding.EncodeToString(notes[:n]))
		notes = notes[n:]
	}
}
