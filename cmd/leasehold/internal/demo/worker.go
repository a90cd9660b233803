package demo

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/worker"
)

// WorkerConfig is what a worker process is told by the driver.
type WorkerConfig struct {
	ID       string `json:"id"`
	Process  string `json:"process"` // its name in the evidence
	Servers  string `json:"servers"`
	Keyspace string `json:"keyspace"`
	Evidence string `json:"evidence"` // directory
	Ledger   string `json:"ledger"`   // file
	Guarded  bool   `json:"guarded"`
	Source   Source `json:"source"`
}

// Words that the driver writes to a worker's standard input.
const (
	sayArm   = "arm"   // N: close the gate of partition N
	sayOpen  = "open"  // N: open it
	sayLast  = "last"  // N: the stream ends with order N of each partition
	sayLeave = "leave" // leave cleanly, for good
)

// Surroundings of a worker process.
type Surroundings struct {
	In  io.Reader // the driver's words
	Out io.Writer // copies of the evidence
	Log *slog.Logger
	// Clock is what the worker library goes by; nil: this machine's.
	Clock bootclock.Clock
	// Metrics is where the worker library counts; nil: nowhere.
	Metrics *metrics.Worker
	// TLS and Credential say who the worker is to servers of somebody else.
	TLS        *tls.Config
	Credential client.Credential
}

// RunWorker is a worker process of the demo. It runs until ctx is done (a
// restart is expected), it is told to leave, or its input ends, which means
// that the driver is gone. Each record of its evidence is copied to Out.
//
// It starts one goroutine, which reads in and ends with it or the process.
func RunWorker(ctx context.Context, raw string, at Surroundings) (err error) {
	var cfg WorkerConfig
	if err := json.Unmarshal([]byte(raw), &cfg); err != nil {
		return fmt.Errorf("parse worker configuration: %w", err)
	}
	record, err := NewRecorder(cfg.Evidence, cfg.Process, cfg.ID, at.Out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, record.Close()) }()
	ledger, err := OpenLedger(ctx, cfg.Ledger, cfg.Guarded)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()

	r := &relay{id: cfg.ID, source: &cfg.Source, ledger: ledger, record: record, closing: newClosing(), clock: newLibraryClock(at.Clock), log: at.Log}
	r.gate = newGate(func(partition uint32, token uint64) {
		record.Write(Record{Kind: KindGate, Partition: partition, Token: token})
	})
	w, err := worker.Join(ctx, worker.Config{
		Servers: cfg.Servers, ID: cfg.ID, Logger: at.Log, Clock: r.clock.Clock, Observer: r.observer(), Version: "demo",
		Metrics: at.Metrics, TLS: at.TLS, Credential: at.Credential,
	})
	if err != nil {
		return fmt.Errorf("join: %w", err)
	}
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	go func() {
		r.listen(at.In, func() {
			if err := w.Leave(ctx); err != nil {
				at.Log.Error("leave", "error", err)
			}
		})
		gone(errors.New("driver is gone"))
	}()

	var opts []worker.Option
	if cfg.Guarded {
		opts = append(opts, worker.Claim(ledger.guard))
	}
	record.Write(Record{Kind: KindJoined})
	err = w.Run(ctx, cfg.Keyspace, r.handle, opts...)
	record.Write(Record{Kind: KindLeft, Cause: words(err)})
	return err
}

// listen does what the driver says until the input ends.
func (r *relay) listen(in io.Reader, leave func()) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.ParseInt(rest, 10, 64) // words without a number leave it 0
		switch word {
		case sayArm:
			r.gate.arm(uint32(n))
		case sayOpen:
			r.gate.open(uint32(n))
		case sayLast:
			r.closing.at(n)
		case sayLeave:
			leave()
		default:
			r.log.Error("driver said an unknown word", "word", word)
		}
	}
}
