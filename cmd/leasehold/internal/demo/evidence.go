package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Kind says what a record is about.
type Kind string

// What a worker process writes to its own file.
const (
	KindJoined   Kind = "joined"   // the process runs and asks for partitions
	KindStart    Kind = "start"    // a context became live
	KindRunning  Kind = "running"  // first statement of the handler
	KindWrote    Kind = "wrote"    // first accepted order under this token
	KindDraining Kind = "draining" // the handler heard of a planned move
	KindEnd      Kind = "end"      // the context ended, Cause says why
	KindReturn   Kind = "return"   // the handler returned
	KindAck      Kind = "ack"      // a keep-alive sent at Sent was acknowledged
	KindGate     Kind = "gate"     // the handler waits between Check and its write
	KindRejected Kind = "rejected" // the ledger's guard refused a write
	KindLeft     Kind = "left"     // every Run has returned
)

// What the driver writes about others, to its file: Process names whom.
const (
	KindKill          Kind = "kill"           // SIGKILL is about to be sent to a worker
	KindDead          Kind = "dead"           // the process has been reaped
	KindStop          Kind = "stop"           // SIGSTOP is about to be sent
	KindContinue      Kind = "continue"       // SIGCONT has been sent
	KindRestart       Kind = "restart"        // SIGTERM is about to be sent; the same id comes back
	KindRestarted     Kind = "restarted"      // it has all its partitions again, or time is up
	KindLeaderKill    Kind = "leader_kill"    // SIGKILL is about to be sent to the leader
	KindLeaderSettled Kind = "leader_settled" // the watch for moves after it has ended
	KindDrain         Kind = "drain"          // from the cluster's events: a drain was proposed
	KindMove          Kind = "move"           // from the cluster's events: a grant, with its cause
)

// Record is one line of evidence. Times are readings of the boot clock, which
// all processes of a machine share.
type Record struct {
	At        time.Duration `json:"at_ns"`
	Kind      Kind          `json:"kind"`
	Process   string        `json:"process"` // worker id and start number: w2.1
	Worker    string        `json:"worker,omitempty"`
	Partition uint32        `json:"partition,omitempty"`
	Token     uint64        `json:"token,string,omitempty"`
	Seq       int64         `json:"seq,omitempty"`     // of an order
	Sent      time.Duration `json:"sent_ns,omitempty"` // of an acknowledged keep-alive
	Cause     string        `json:"cause,omitempty"`
}

// DriverProcess names the driver in evidence.
const DriverProcess = "driver"

const evidenceSuffix = ".jsonl"

// Recorder appends records to a file, each with one write, so that a kill
// loses none that was written: the kernel has it. A copy goes to echo.
// It may be used from any goroutine.
type Recorder struct {
	process, worker string

	mu   sync.Mutex // guards what follows and keeps lines whole
	file *os.File
	echo io.Writer
	err  error
}

// NewRecorder creates the file of a process, which must not exist. echo may
// be nil.
func NewRecorder(dir, process, workerID string, echo io.Writer) (*Recorder, error) {
	f, err := os.OpenFile(filepath.Join(dir, process+evidenceSuffix), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create evidence of %s: %w", process, err)
	}
	return &Recorder{process: process, worker: workerID, file: f, echo: echo}, nil
}

// Write stamps and appends. A zero At becomes now, an empty Process this one.
// The first error is kept for Close.
func (r *Recorder) Write(rec Record) {
	if rec.At == 0 {
		rec.At = Now()
	}
	if rec.Process == "" {
		rec.Process, rec.Worker = r.process, r.worker
	}
	line, err := json.Marshal(rec)
	line = append(line, '\n')
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		_, err = r.file.Write(line)
	}
	if err == nil && r.echo != nil {
		_, err = r.echo.Write(line)
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("write evidence of %s: %w", r.process, err)
	}
}

// Close closes the file and returns the first error of any Write.
func (r *Recorder) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.file.Close())
}

// Evidence is what the files of one run say: records by process, in the order
// of the file, which is nearly but not strictly that of time.
type Evidence map[string][]Record

// ReadEvidence reads every file of a directory.
func ReadEvidence(dir string) (Evidence, error) {
	all := Evidence{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read evidence: %w", err)
	}
	for _, e := range entries {
		process, ok := strings.CutSuffix(e.Name(), evidenceSuffix)
		if !ok || e.Type() == fs.ModeDir {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read evidence: %w", err)
		}
		records, err := parseRecords(raw)
		if err != nil {
			return nil, fmt.Errorf("read evidence of %s: %w", process, err)
		}
		all[process] = records
	}
	return all, nil
}

// parseRecords reads lines. Only the last may be torn: its writer was killed.
func parseRecords(raw []byte) ([]Record, error) {
	var records []Record
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		var rec Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			if torn := len(raw) > 0 && raw[len(raw)-1] != '\n' && !lines.Scan(); torn {
				return records, nil
			}
			return nil, fmt.Errorf("parse line %d: %w", n, err)
		}
		records = append(records, rec)
	}
	return records, lines.Err()
}
