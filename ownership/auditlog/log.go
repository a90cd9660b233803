package auditlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// Defaults of a Config.
const (
	DefaultSegmentBytes = 64 << 20
	DefaultSegments     = 8
)

// Bounds of a Config: below, the files would change all the time.
const (
	MinSegmentBytes = 64 << 10
	MinSegments     = 2
)

const (
	queueLen  = 4096 // entries that wait for the disk
	maxBatch  = 256  // entries written at once
	syncEvery = time.Second

	// Unknown callers may write this many entries a second, and so many at once:
	// about 160 MB a day at the worst, of which the default segments hold three days.
	unknownRate  = 5
	unknownBurst = 100
)

// Config of a Log.
type Config struct {
	// Path of the newest segment. Those before have a dot and the number of their
	// first line behind it.
	Path string
	// Server is the id that stands in each line.
	Server string
	// SegmentBytes is the size at which a new segment begins, Segments how many are
	// kept with the newest. 0: the defaults.
	SegmentBytes int64
	Segments     int
	// Lost is told of entries that could not be written. nil: nobody is.
	Lost func(n int)
	// Logger says when entries are lost. nil: slog.Default().
	Logger *slog.Logger

	open func(name string, flag int) (file, error) // tests: a disk that fails
}

// Log writes entries. Use Open.
type Log struct {
	queue   chan Entry
	ended   chan struct{}
	unknown *rate.Limiter

	lost    atomic.Int64 // not yet told of in the file
	limited atomic.Int64 // the same
	losing  atomic.Bool  // the log of the server has been told
	onLost  func(int)
	log     *slog.Logger

	mu     sync.RWMutex // for closed, against a Record in the middle
	closed bool

	w        *writer // the goroutine's alone
	unsynced bool
	syncErr  error // of the last sync
}

// Open begins or goes on with the file of a Config. Its goroutine runs until Close.
func Open(c Config) (*Log, error) {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	w, err := openWriter(&c)
	if err != nil {
		return nil, fmt.Errorf("audit log %s: %w", c.Path, err)
	}
	l := &Log{
		queue: make(chan Entry, queueLen), ended: make(chan struct{}), unknown: rate.NewLimiter(unknownRate, unknownBurst),
		onLost: c.Lost, log: c.Logger.With("audit_log", c.Path), w: w,
	}
	go l.run()
	return l, nil
}

// Record has an entry written. It never waits; see the package comment for what
// becomes of an entry that cannot be written. The zero Time is now.
func (l *Log) Record(e Entry) {
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	if e.Identity.Role == 0 && !l.unknown.AllowN(e.Time, 1) {
		l.limited.Add(1)
		return
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		l.lose(1, errors.New("the log is closed"))
		return
	}
	select {
	case l.queue <- e:
	default:
		l.lose(1, fmt.Errorf("%d entries wait for the disk already", queueLen))
	}
}

// lose counts entries that are not written, and says so once for each time that the
// disk gives cause.
func (l *Log) lose(n int, why error) {
	l.lost.Add(int64(n))
	if l.onLost != nil && n > 0 {
		l.onLost(n)
	}
	if !l.losing.Swap(true) {
		l.log.Error("entries of the audit log are lost: calls go on, and a line will say how many", "err", why)
	}
}

// Close writes what waits and ends the goroutine. When the context ends before, the
// goroutine stays until the disk answers.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.mu.Unlock()
	select {
	case <-l.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("audit log: the disk does not answer: %w", ctx.Err())
	}
}

func (l *Log) run() {
	defer close(l.ended)
	defer l.w.close()
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	batch := make([]record, 0, maxBatch)
	for {
		select {
		case e, open := <-l.queue:
			if !open {
				l.write(append(batch, l.w.own(time.Now(), methodStop, "ok")))
				l.sync()
				return
			}
			l.write(l.more(append(batch, e.record())))
		case <-tick.C:
			l.write(batch)
			l.sync()
		}
	}
}

// more adds what else waits.
func (l *Log) more(batch []record) []record {
	for len(batch) < maxBatch {
		select {
		case e, open := <-l.queue:
			if !open {
				return batch // run sees it as well
			}
			batch = append(batch, e.record())
		default:
			return batch
		}
	}
	return batch
}

// write appends a batch, after what is to be said of entries that are not there.
func (l *Log) write(batch []record) {
	lost, limited := l.lost.Swap(0), l.limited.Swap(0)
	var head []record
	if lost > 0 {
		head = append(head, l.w.own(time.Now(), methodLost, fmt.Sprintf("%d entries could not be written", lost)))
	}
	if limited > 0 {
		head = append(head, l.w.own(time.Now(), methodLimited, fmt.Sprintf("%d entries of unknown callers above %d a second", limited, unknownRate)))
	}
	if len(head)+len(batch) == 0 {
		return
	}
	if err := l.w.append(append(head, batch...)); err != nil {
		l.lost.Add(lost)
		l.limited.Add(limited)
		l.lose(len(batch), err)
		return
	}
	l.unsynced = true
	if lost > 0 && l.losing.Swap(false) {
		l.log.Warn("the audit log is written again", "lost", lost)
	}
}

func (l *Log) sync() {
	if !l.unsynced {
		return
	}
	err := l.w.sync()
	if err != nil && l.syncErr == nil {
		l.log.Error("the audit log cannot be brought to the disk: a crash of the machine may lose lines", "err", err)
	}
	l.syncErr = err
	l.unsynced = err != nil
}
