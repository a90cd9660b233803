package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Standing is a stream of orders that nobody drives: workers are started by
// hand, on one machine or in containers of it, and find it in a directory that
// they share. The first of them begins it. The directory has
//
//	stream.json   what the stream is
//	ledger.db     the ledger
//	evidence/     what each process wrote about itself
//	last          the number of the last order, once somebody has written it
type Standing struct {
	Dir string
	Standby
}

// Standby is what stream.json says.
type Standby struct {
	Source    Source `json:"source"`
	TTLMillis int64  `json:"ttl_ms"`
	Mode      Mode   `json:"mode"`
}

// DefaultStandby is a stream of 64 partitions.
func DefaultStandby() Standby {
	const partitions = 64
	return Standby{
		Source: Source{Seed: 1, Partitions: partitions, Pace: 4 * pace(partitions)}, TTLMillis: ttl.Milliseconds(), Mode: Strict,
	}
}

// OpenStanding finds the stream in a directory, or begins one.
func OpenStanding(dir string, begin Standby) (*Standing, error) {
	if err := os.MkdirAll(filepath.Join(dir, "evidence"), 0o777); err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	begin.Source.Start = Now()
	raw, err := json.Marshal(begin)
	if err != nil {
		return nil, fmt.Errorf("encode stream: %w", err)
	}
	// Whole or not at all, and the first one wins.
	file := filepath.Join(dir, "stream.json")
	tmp := fmt.Sprintf("%s.%d.%d", file, os.Getpid(), Now())
	if err := os.WriteFile(tmp, raw, 0o666); err != nil {
		return nil, fmt.Errorf("begin stream: %w", err)
	}
	err = os.Link(tmp, file)
	if err = errors.Join(ignore(err, fs.ErrExist), os.Remove(tmp)); err != nil {
		return nil, fmt.Errorf("begin stream: %w", err)
	}
	return ReadStanding(dir)
}

func ignore(err, harmless error) error {
	if errors.Is(err, harmless) {
		return nil
	}
	return err
}

// ReadStanding finds the stream in a directory.
func ReadStanding(dir string) (*Standing, error) {
	s := &Standing{Dir: dir}
	raw, err := os.ReadFile(filepath.Join(dir, "stream.json"))
	if err == nil {
		err = json.Unmarshal(raw, &s.Standby)
	}
	if err != nil {
		return nil, fmt.Errorf("read stream of orders: %w", err)
	}
	return s, nil
}

func (s *Standing) path(name string) string { return filepath.Join(s.Dir, name) }

// Relay is one worker, until ctx ends. It creates the keyspace if need be.
// Beside the worker's goroutines it has one that waits for the last order.
func (s *Standing) Relay(ctx context.Context, id, servers string, at Surroundings) error {
	if err := s.createKeyspace(ctx, servers, at); err != nil {
		return err
	}
	process, err := s.process(id)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(WorkerConfig{
		ID: id, Process: process, Servers: servers, Keyspace: Keyspace,
		Evidence: s.path("evidence"), Ledger: s.path("ledger.db"), Guarded: true, Source: s.Source,
	})
	if err != nil {
		return fmt.Errorf("encode worker configuration: %w", err)
	}
	words, say := io.Pipe()
	done := make(chan struct{})
	waiting, stop := context.WithCancel(ctx)
	go func() {
		defer close(done)
		s.tellLast(waiting, say)
	}()
	at.In = words
	err = RunWorker(ctx, string(raw), at)
	stop()
	_ = words.Close() // a pipe in memory
	<-done
	return err
}

// createKeyspace waits for the servers, too: containers start in any order.
func (s *Standing) createKeyspace(ctx context.Context, servers string, at Surroundings) error {
	c, err := client.New(client.Config{Servers: servers, Timeout: patience, TLS: at.TLS, Credential: at.Credential})
	if err != nil {
		return fmt.Errorf("look for servers: %w", err)
	}
	defer c.Close()
	takeover := leaseholdv1.Takeover_TAKEOVER_STRICT
	if s.Mode == Fenced {
		takeover = leaseholdv1.Takeover_TAKEOVER_FENCED
	}
	_, err = c.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{
		Name: Keyspace, Partitions: s.Source.Partitions, TtlMs: s.TTLMillis, Takeover: takeover,
	})
	switch leaseholdv1.ReasonOf(err) {
	case leaseholdv1.ReasonExists, leaseholdv1.ReasonDenied: // then it is an operator's to create
		return nil
	}
	if err != nil {
		return fmt.Errorf("create keyspace: %w", err)
	}
	return nil
}

// process names the process in the evidence: each start of an id is another.
func (s *Standing) process(id string) (string, error) {
	files, err := filepath.Glob(s.path("evidence/" + id + ".*" + evidenceSuffix))
	if err != nil {
		return "", fmt.Errorf("look for earlier evidence of %s: %w", id, err)
	}
	return fmt.Sprintf("%s.%d", id, len(files)+1), nil
}

// tellLast passes the number of the last order on, when there is one.
func (s *Standing) tellLast(ctx context.Context, say *io.PipeWriter) {
	defer func() { _ = say.Close() }() // a pipe in memory
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		last, err := s.last()
		if err == nil {
			fmt.Fprintf(say, "%s %d\n", sayLast, last)
			break
		}
	}
	<-ctx.Done()
}

func (s *Standing) last() (int64, error) {
	raw, err := os.ReadFile(s.path("last"))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
}

// End ends the stream and waits until the ledger has all of it. A stream that
// has an end keeps it.
func (s *Standing) End(ctx context.Context) (last int64, err error) {
	if last, err = s.last(); err != nil {
		last = s.Source.Arrived(Now()) + 1
		tmp := s.path("last.tmp")
		if err = os.WriteFile(tmp, []byte(strconv.FormatInt(last, 10)), 0o644); err == nil {
			err = os.Rename(tmp, s.path("last"))
		}
		if err != nil {
			return 0, fmt.Errorf("end stream: %w", err)
		}
	}
	l, err := OpenLedger(ctx, s.path("ledger.db"), true)
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }() // reading only
	return last, l.WaitFor(ctx, s.Source.Partitions, last)
}

// Findings are what ledger and evidence of a standing stream say.
type Findings struct {
	Last                int64    `json:"last"` // order of each partition that was looked for
	OrdersWritten       int      `json:"orders_written"`
	OrdersMissing       int      `json:"orders_missing"`
	OrdersDuplicated    int      `json:"orders_duplicated"`
	TokenRegressions    int      `json:"token_regressions"`
	StaleWritesRejected int      `json:"stale_writes_rejected"`
	IntervalsChecked    int      `json:"intervals_checked"`
	Overlaps            int      `json:"overlaps"` // a paused process may overlap, if nobody has written down when
	Problems            []string `json:"problems"`
}

// Judge reads ledger and evidence. While the stream goes on, it looks for what
// must have arrived by now less a minute.
func (s *Standing) Judge(ctx context.Context) (Findings, error) {
	last, err := s.last()
	if err != nil {
		last = max(0, s.Source.Arrived(Now()-time.Minute))
	}
	l, err := OpenLedger(ctx, s.path("ledger.db"), true)
	if err != nil {
		return Findings{}, err
	}
	defer func() { _ = l.Close() }() // reading only
	audit, err := l.Audit(ctx, &s.Source, max(last, s.Source.Arrived(Now())+1))
	if err != nil {
		return Findings{}, err
	}
	evidence, err := ReadEvidence(s.path("evidence"))
	if err != nil {
		return Findings{}, err
	}
	missing, err := l.missing(ctx, s.Source.Partitions, last)
	if err != nil {
		return Findings{}, err
	}
	limit := time.Duration(s.TTLMillis) * time.Millisecond
	overlaps := CountOverlaps(Tenures(evidence, Deadlines{TTL: limit}, Now()))
	f := Findings{
		Last: last, OrdersWritten: audit.Written, OrdersMissing: missing, OrdersDuplicated: audit.Duplicated,
		TokenRegressions: audit.TokenRegressions, IntervalsChecked: overlaps.Checked, Overlaps: overlaps.Live,
	}
	for _, records := range evidence {
		for _, r := range records {
			if r.Kind == KindRejected {
				f.StaleWritesRejected++
			}
		}
	}
	f.judge(audit, s.Mode)
	return f, nil
}

func (f *Findings) judge(a Audit, mode Mode) {
	for _, x := range []struct {
		n    int
		what string
	}{
		{f.OrdersMissing, "orders are missing"}, {a.Duplicated, "orders were written twice"}, {a.OutOfSequence, "orders are out of sequence"},
		{a.TokenRegressions, "writes were accepted below an accepted token"}, {a.Foreign, "rows are no orders that were sent"},
	} {
		if x.n > 0 {
			f.Problems = append(f.Problems, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if a.Written == 0 {
		f.Problems = append(f.Problems, "no order was written")
	}
	if mode == Strict && f.Overlaps > 0 {
		f.Problems = append(f.Problems, fmt.Sprintf("%d pairs of contexts were live at once", f.Overlaps))
	}
	f.Problems = append(f.Problems, a.Examples...)
}
