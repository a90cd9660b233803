package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/doctor"
	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

const (
	// debugSlack is what a server gets beyond the duration.
	debugSlack = 30 * time.Second
	// maxDebugBytes bounds what is taken of one server.
	maxDebugBytes = 256 << 20
)

type debugFlags struct {
	duration durationFlag
	profile  bool
	out      string
}

func newDebugCommand(e env) *cobra.Command {
	f := debugFlags{duration: durationFlag{d: 30 * time.Second, max: 10 * time.Minute}}
	cmd := &cobra.Command{
		Use:   "debug",
		Short: "Collect an archive from all servers that helps a stranger to find a fault",
		Long: `Collect an archive from every server that answers: goroutines, metrics at the
beginning and at the end, the last log lines at debug level, status, health,
Raft peers, gossip members, keyspaces, workers, a summary of partitions, the last
events, the settings in effect and what doctor finds. With --profile also a CPU
profile of the time and one of the heap.

Secrets stay on the servers: keys are not shown, and what looks like a password
or a credential is replaced; manifest.json says where. Names of workers,
keyspaces and machines are in it. Interrupted, the command keeps what it has.`,
		Example: `  leasehold debug
  leasehold debug --duration 2m --profile -O leasehold-debug.tar.gz
  leasehold debug --duration 0s --server 10.0.0.1:7400   # one look`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e) },
	}
	flags := cmd.Flags()
	flags.Var(&f.duration, "duration", "how long to collect; 0s takes one look")
	flags.BoolVar(&f.profile, "profile", false, "also take profiles of CPU and heap")
	flags.StringVarP(&f.out, "out", "O", "", "the `file` to write (default leasehold-debug-TIME.tar.gz here)")
	return cmd
}

func (f *debugFlags) run(ctx context.Context, e env) error {
	name := f.out
	if name == "" {
		name = "leasehold-debug-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	c, err := e.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	facts, err := e.examine(ctx, 0, true)
	if err != nil {
		return err
	}
	if !facts.Answered() {
		_, err := c.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{}) // says it best
		if err == nil {
			err = errors.New("the servers answered only now: try again")
		}
		return &codedError{exitUnreachable, fmt.Errorf("collect a debug archive: %w", err)}
	}
	a, err := newArchive(name)
	if err != nil {
		return err
	}
	m := f.collect(ctx, e, c, facts, a)
	var findings bytes.Buffer
	if err := printItems(&findings, diagnose(facts)); err != nil {
		return err
	}
	a.add("doctor.json", findings.Bytes())
	a.json("manifest.json", m)
	if err := a.close(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.tell(e, name, a, m); err != nil {
		return err
	}
	if m.Interrupted {
		return context.Cause(ctx)
	}
	return nil
}

// debugManifest says what is in an archive.
type debugManifest struct {
	Created     time.Time     `json:"created"`
	Version     string        `json:"version"` // of who collected it
	DurationMs  int64         `json:"duration_ms"`
	Interrupted bool          `json:"interrupted"`
	Redaction   string        `json:"redaction"`
	Servers     []debugServer `json:"servers"`
}

type debugServer struct {
	ID   string `json:"id"`
	Addr string `json:"addr"`
	// Error says why there is nothing, or not all, of this server.
	Error  string            `json:"error,omitempty"`
	Files  []api.DebugEntry  `json:"files"`
	Failed []api.DebugFailed `json:"failed"`
}

const redactionRules = "On the server, before anything left it: keys and passwords that it knows, values whose name says that they are a " +
	"password, secret, credential, API key or authorization, worker labels called so or token or key, and passwords in URLs were replaced by [redacted]. " +
	"The settings are a list of what may be shown. Files that have any say how many in redacted."

// collect takes from all servers at once and returns the manifest.
func (f *debugFlags) collect(ctx context.Context, e env, c *client.Client, facts *doctor.Facts, a *archive) debugManifest {
	m := debugManifest{Created: time.Now().UTC(), Version: version(), DurationMs: f.duration.ms(), Redaction: redactionRules}
	bar := newProgress(e)
	defer bar.done()
	var mu sync.Mutex
	var wg sync.WaitGroup
	began := time.Now()
	for _, s := range facts.Servers {
		if !s.Up() {
			m.Servers = append(m.Servers, debugServer{ID: s.ID, Addr: s.Addr, Error: fmt.Sprintf("gives no answer: %v", s.Second.Err), Files: []api.DebugEntry{}, Failed: []api.DebugFailed{}})
			continue
		}
		wg.Go(func() {
			got := f.collectFrom(ctx, c, s.ID, s.Addr, a, func() {
				mu.Lock()
				defer mu.Unlock()
				left := max(f.duration.d-time.Since(began), 0)
				files, bytes := a.taken()
				bar.show("%d files, %d KiB, %v left", files, bytes>>10, left.Round(time.Second))
			})
			mu.Lock()
			defer mu.Unlock()
			m.Servers = append(m.Servers, got)
		})
	}
	wg.Wait()
	m.Interrupted = ctx.Err() != nil
	slices.SortFunc(m.Servers, func(a, b debugServer) int { return strings.Compare(a.ID, b.ID) })
	return m
}

// collectFrom takes from one server. What has come when it breaks off stays.
func (f *debugFlags) collectFrom(ctx context.Context, c *client.Client, id, addr string, a *archive, progress func()) debugServer {
	got := debugServer{ID: id, Addr: addr, Files: []api.DebugEntry{}, Failed: []api.DebugFailed{}}
	ctx, cancel := context.WithTimeout(ctx, f.duration.d+debugSlack)
	defer cancel()
	conn, err := c.Open(addr)
	if err != nil {
		got.Error = err.Error()
		return got
	}
	defer conn.Close()
	stream, err := leaseholdv1.NewClusterServiceClient(conn).CollectDebug(ctx, &leaseholdv1.CollectDebugRequest{DurationMs: f.duration.ms(), Profile: f.profile})
	if err != nil {
		got.Error = message(err)
		return got
	}
	r := debugReader{server: safeName(id), archive: a, got: &got}
	for {
		m, err := stream.Recv()
		if err != nil {
			r.end(err)
			return got
		}
		if err := r.take(m); err != nil {
			r.end(err)
			return got
		}
		progress()
	}
}

// debugReader puts the pieces of files together.
type debugReader struct {
	server  string
	archive *archive
	got     *debugServer
	name    string // of the file in the making
	data    []byte
	total   int
}

func (r *debugReader) take(m *leaseholdv1.CollectDebugResponse) error {
	if m.GetName() != r.name {
		r.flush("")
		r.name = m.GetName()
	}
	if r.total += len(m.GetData()); r.total > maxDebugBytes {
		return fmt.Errorf("more than %d MiB came of it", maxDebugBytes>>20)
	}
	r.data = append(r.data, m.GetData()...)
	return nil
}

// end notes how the stream ended. The last file of one that broke off may not
// be whole.
func (r *debugReader) end(err error) {
	if errors.Is(err, io.EOF) {
		r.flush("")
		return
	}
	r.got.Error = "broke off: " + message(err)
	r.flush(".partial")
}

func (r *debugReader) flush(suffix string) {
	if r.name == "" {
		return
	}
	name, data := r.name, r.data
	r.name, r.data = "", nil
	if name == api.DebugReportName && suffix == "" {
		r.report(data)
		return
	}
	r.archive.add(path.Join(r.server, safePath(name)+suffix), data)
	r.got.Files = append(r.got.Files, api.DebugEntry{Name: name + suffix, Bytes: len(data)})
}

// report takes over what the server says of its files.
func (r *debugReader) report(data []byte) {
	var report api.DebugReport
	if err := json.Unmarshal(data, &report); err != nil {
		r.got.Error = "its report cannot be read: " + err.Error()
		return
	}
	r.got.Files, r.got.Failed = report.Files, report.Failed
}

// tell says where the archive is and what it lacks.
func (f *debugFlags) tell(e env, name string, a *archive, m debugManifest) error {
	if e.json() {
		return printJSON(e.stdout, struct {
			File string `json:"file"`
			debugManifest
		}{name, m})
	}
	for _, s := range m.Servers {
		if s.Error != "" {
			if err := e.warn("server %s at %s: %s", cell(s.ID), s.Addr, plain(s.Error)); err != nil {
				return err
			}
		}
		for _, failed := range s.Failed {
			if err := e.warn("server %s: %s could not be made: %s", cell(s.ID), plain(failed.Name), plain(failed.Error)); err != nil {
				return err
			}
		}
	}
	files, bytes := a.taken()
	return e.say("%s: %d files, %d KiB before compression; look through it before you give it away: tar tzf %s", name, files, bytes>>10, name)
}

// fileMode of an archive: it tells much about the cluster.
const fileMode os.FileMode = 0o600
