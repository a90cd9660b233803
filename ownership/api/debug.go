package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// debugChunk is how much of a file one message carries.
	debugChunk = 256 << 10
	// maxDebug is how long a collection may take.
	maxDebug = 10 * time.Minute
)

// DebugFile is one file of a debug archive.
type DebugFile struct {
	Name string
	Read func(context.Context) ([]byte, error)
	// Late files are read again at the end of a collection that takes time.
	Late bool
}

// DebugReport is the last file of a collection, collected.json: what was sent
// and what could not be.
type DebugReport struct {
	Server     string        `json:"server"`
	Version    string        `json:"version"`
	DurationMs int64         `json:"duration_ms"`
	Files      []DebugEntry  `json:"files"`
	Failed     []DebugFailed `json:"failed"`
}

// DebugEntry is a file that was sent.
type DebugEntry struct {
	Name     string `json:"name"`
	Bytes    int    `json:"bytes"`
	Redacted int    `json:"redacted"` // secrets that were replaced in it
}

// DebugFailed is a file that could not be made.
type DebugFailed struct {
	Name  string `json:"name"`
	Error string `json:"error"`
}

// DebugReportName is the name of the report among the files.
const DebugReportName = "collected.json"

const goroutinesName = "goroutines.txt"

// CollectDebug streams files about the asked server.
func (a *cluster) CollectDebug(r *pb.CollectDebugRequest, out grpc.ServerStreamingServer[pb.CollectDebugResponse]) error {
	return a.collectDebug(out.Context(), r, out.Send)
}

// collectDebug sends all files at once, so that a collection that is broken off
// has them, and at the end of its time the late ones again, under end/.
func (a *cluster) collectDebug(ctx context.Context, r *pb.CollectDebugRequest, send func(*pb.CollectDebugResponse) error) error {
	took := time.Duration(r.GetDurationMs()) * time.Millisecond
	if r.GetDurationMs() < 0 || took > maxDebug {
		return invalid("duration_ms", strconv.FormatInt(r.GetDurationMs(), 10), fmt.Sprintf("want 0 to %d", maxDebug.Milliseconds()))
	}
	if !a.collecting.CompareAndSwap(false, true) {
		return failf(pb.ReasonConflict, "server %s is making a debug archive already: try again when it is done", a.cfg.ServerID)
	}
	defer a.collecting.Store(false)
	c := &debugCollection{api: a.API, send: send, report: DebugReport{
		Server: a.cfg.ServerID, Version: a.cfg.Version, DurationMs: r.GetDurationMs(), Files: []DebugEntry{}, Failed: []DebugFailed{},
	}}
	files := append(a.debugFiles(), a.cfg.DebugFiles...)
	if err := c.all(ctx, files, "", false); err != nil {
		return err
	}
	if took > 0 {
		if err := c.over(ctx, took, r.GetProfile()); err != nil {
			return err
		}
		if err := c.all(ctx, files, "end", true); err != nil {
			return err
		}
	}
	if r.GetProfile() {
		if err := c.file("heap.pprof", heapProfile); err != nil {
			return err
		}
	}
	return c.finish()
}

// debugCollection is one archive in the making.
type debugCollection struct {
	api    *API
	send   func(*pb.CollectDebugResponse) error
	report DebugReport
}

func (c *debugCollection) all(ctx context.Context, files []DebugFile, dir string, late bool) error {
	for _, f := range files {
		if late && !f.Late {
			continue
		}
		if err := c.file(path.Join(dir, f.Name), func() ([]byte, error) { return f.Read(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// over lets the time pass, with a CPU profile if it is wanted.
func (c *debugCollection) over(ctx context.Context, took time.Duration, profile bool) error {
	var cpu bytes.Buffer
	var failed error
	if profile {
		if failed = pprof.StartCPUProfile(&cpu); failed == nil {
			defer pprof.StopCPUProfile()
		}
	}
	timer := time.NewTimer(took)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.api.stopping:
		return errShuttingDown()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if !profile {
		return nil
	}
	return c.file("cpu.pprof", func() ([]byte, error) {
		if failed == nil {
			pprof.StopCPUProfile()
		}
		return cpu.Bytes(), failed
	})
}

// file makes one file and sends it without secrets. Only an error of sending
// is returned: what cannot be made is noted.
func (c *debugCollection) file(name string, read func() ([]byte, error)) error {
	data, err := read()
	if err != nil {
		text, _ := c.api.redact.clean([]byte(err.Error()))
		c.report.Failed = append(c.report.Failed, DebugFailed{name, string(text)})
		return nil
	}
	replaced := 0
	switch {
	case strings.HasSuffix(name, ".pprof"): // compressed, and without any value of the process
	case path.Base(name) == goroutinesName:
		data, replaced = c.api.redact.cleanKnown(data)
	default:
		data, replaced = c.api.redact.clean(data)
	}
	c.report.Files = append(c.report.Files, DebugEntry{name, len(data), replaced})
	return c.sendFile(name, data)
}

func (c *debugCollection) sendFile(name string, data []byte) error {
	for {
		n := min(len(data), debugChunk)
		if err := c.send(&pb.CollectDebugResponse{Name: name, Data: data[:n]}); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

func (c *debugCollection) finish() error {
	raw, err := json.MarshalIndent(c.report, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report of a debug archive: %w", err)
	}
	return c.sendFile(DebugReportName, append(raw, '\n'))
}

func heapProfile() ([]byte, error) {
	var b bytes.Buffer
	err := pprof.Lookup("heap").WriteTo(&b, 0)
	return b.Bytes(), err
}

func goroutines(context.Context) ([]byte, error) {
	p := pprof.Lookup("goroutine")
	if p == nil {
		return nil, errors.New("the runtime has no profile of goroutines")
	}
	var b bytes.Buffer
	err := p.WriteTo(&b, 2)
	return b.Bytes(), err
}
