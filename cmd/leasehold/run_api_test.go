package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/sidecar"
)

// wire is the API as the command of per-worker mode sees it.
type wire struct {
	t      *testing.T
	socket string
	client *http.Client
}

// perWorker starts a sidecar in per-worker mode, with a command that does
// nothing but tell where the API is.
func (f *field) perWorker(id, script string) (*program, *wire) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "socket")
	p := f.sidecar(id, `echo "$LEASEHOLD_SOCKET" >`+file+`.new; mv `+file+`.new `+file+"\n"+script, "--mode", "per-worker")
	w := &wire{t: f.t}
	f.until("the socket", func() bool {
		raw, err := os.ReadFile(file)
		w.socket = strings.TrimSpace(string(raw))
		return err == nil
	})
	w.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", w.socket)
	}}}
	return p, w
}

type apiLease struct {
	Partition uint32
	Token     string
	Range     string
	State     string
	Ready     bool
	Cause     string
	Confirm   bool
	ReleaseMs *int64 `json:"release_ms"`
}

type apiList struct {
	Keyspace   string
	Partitions uint32
	Worker     string
	TTLMs      int64  `json:"ttl_ms"`
	EventID    string `json:"event_id"`
	Leases     []apiLease
}

type apiProblem struct {
	Type, Title, Detail, Field, Value, Limit string
	Status                                   int
}

// ask makes one call and decodes the answer.
func (w *wire) ask(method, path, body string, into any) int {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://sidecar"+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if want := map[bool]string{true: "application/json", false: "application/problem+json"}[resp.StatusCode < 300]; resp.Header.Get("Content-Type") != want {
		w.t.Errorf("%s %s: %d with content type %q", method, path, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	if into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			w.t.Fatalf("%s %s: %v: %s", method, path, err, raw)
		}
	}
	return resp.StatusCode
}

// leases waits until so many are listed.
func (w *wire) leases(n int) apiList {
	w.t.Helper()
	var l apiList
	waitFor(w.t, fmt.Sprintf("%d leases", n), func() bool {
		l = apiList{}
		return w.ask("GET", "/v1/leases", "", &l) == http.StatusOK && len(l.Leases) == n
	})
	return l
}

// sse is a watch.
type sse struct {
	t    *testing.T
	in   *bufio.Reader
	body io.Closer
}

type sseEvent struct{ id, name, data string }

func (w *wire) watch(after string) *sse {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), "GET", "http://sidecar/v1/watch", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", after)
	resp, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		w.t.Fatalf("watch: %s", resp.Status)
	}
	return &sse{w.t, bufio.NewReader(resp.Body), resp.Body}
}

func (s *sse) next() sseEvent {
	s.t.Helper()
	var e sseEvent
	for {
		text, err := s.in.ReadString('\n')
		if err != nil {
			s.t.Fatalf("watch: %v", err)
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ": ")
		switch {
		case text == "\n" && e.name != "":
			return e
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data = value
		}
	}
}

// wantNext wants an event about a partition.
func (s *sse) wantNext(name string, partition uint32) (sseEvent, apiLease) {
	s.t.Helper()
	e := s.next()
	var l apiLease
	if err := json.Unmarshal([]byte(e.data), &l); err != nil {
		s.t.Fatalf("%s: %v", e.data, err)
	}
	if e.name != name || l.Partition != partition {
		s.t.Fatalf("event %s of partition %d: %s, want %s of %d", e.name, l.Partition, e.data, name, partition)
	}
	return e, l
}

// One command for all partitions: it lists, watches, checks, and gives back.
func TestRunAPI(t *testing.T) {
	t.Parallel()
	f := newField(t, 3, "--ttl", "10s")
	p, w := f.perWorker("w1", "exec sleep 600")
	for path, want := range map[string]os.FileMode{w.socket: 0o600, filepath.Dir(w.socket): 0o700} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v (%v), want %v: others could speak to it", path, info.Mode(), err, want)
		}
	}
	l := w.leases(3)
	if l.Keyspace != "jobs" || l.Partitions != 3 || l.Worker != "w1" || l.TTLMs != 10_000 || l.Leases[1].Range != "5555555555555556-aaaaaaaaaaaaaaaa" || l.Leases[1].State != "held" {
		t.Errorf("list %+v", l)
	}
	first := l.Leases[0]

	// Check, by the local clock.
	for path, want := range map[string]int{
		"/v1/check?partition=0":                         http.StatusOK,
		"/v1/check?partition=0&token=" + first.Token:    http.StatusOK,
		"/v1/check?partition=0&token=17":                http.StatusGone,
		"/v1/check?partition=0&token=9007199254740991":  http.StatusGone,
		"/v1/check?partition=1&token=" + first.Token:    http.StatusGone,
		"/v1/ready?partition=0&token=" + first.Token:    http.StatusOK,
		"/v1/release?partition=0&token=" + "1234567890": http.StatusGone, // a late retry releases nothing
	} {
		if got := w.ask("POST", path, "", nil); got != want {
			t.Errorf("POST %s: %d, want %d", path, got, want)
		}
	}
	if l := w.leases(3); !l.Leases[0].Ready || l.Leases[1].Ready {
		t.Errorf("ready: %+v", l.Leases)
	}

	// A watch begins with all there is, then tells what changes, and resumes.
	s := w.watch("")
	snapshot := s.next()
	if snapshot.name != "snapshot" || !strings.Contains(snapshot.data, first.Token) {
		t.Fatalf("first event %+v", snapshot)
	}
	if got := w.ask("POST", "/v1/release", `{"partition": 0, "token": "`+first.Token+`"}`, nil); got != http.StatusOK {
		t.Fatalf("release: %d", got)
	}
	_, end := s.wantNext("ended", 0)
	if end.Cause != "released" || end.Token != first.Token || end.Confirm {
		t.Errorf("end %+v", end)
	}
	again, granted := s.wantNext("granted", 0)
	if granted.Token <= first.Token || granted.State != "held" {
		t.Errorf("granted %+v after token %s", granted, first.Token)
	}
	resumed := w.watch(snapshot.id)
	resumed.wantNext("ended", 0)
	if e, _ := resumed.wantNext("granted", 0); e != again {
		t.Errorf("resumed: %+v, want %+v", e, again)
	}
	for _, id := range []string{"elsewhere-7", again.id + "9", "7", "-", strings.Repeat("x", 4000)} {
		if e := w.watch(id).next(); e.name != "snapshot" {
			t.Errorf("a watch after %.20q begins with %s", id, e.name)
		}
	}

	// A reported failure counts.
	if got := w.ask("POST", "/v1/release", `{"partition": 1, "token": "`+l.Leases[1].Token+`", "failed": "no disk"}`, nil); got != http.StatusOK {
		t.Fatalf("release with failure: %d", got)
	}
	s.wantNext("ended", 1)
	eventually(t, f.server, "failed on   1 workers", "partitions", "show", "jobs", "1")

	w.refusesNonsense(granted.Token)

	// SIGTERM is the command's too.
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 128+int(syscall.SIGTERM) {
		t.Errorf("exit code %d, want the command's 143\n%s", code, p.stderr)
	}
	if _, err := os.Stat(filepath.Dir(w.socket)); !os.IsNotExist(err) {
		t.Errorf("the socket's directory is left: %v", err)
	}
}

// refusesNonsense: each bad request is answered with what is wrong.
func (w *wire) refusesNonsense(token string) {
	w.t.Helper()
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"GET", "/", "", 404, "path"},
		{"GET", "/v2/leases", "", 404, "path"},
		{"GET", "/v1/leases/", "", 404, "path"},
		{"DELETE", "/v1/leases", "", 405, "method"},
		{"GET", "/v1/release?partition=0&token=" + token, "", 405, "method"},
		{"GET", "/v1/leases?partition=0", "", 400, "parameter"},
		{"GET", "/v1/watch?after=3", "", 400, "parameter"},
		{"GET", "/v1/check", "", 400, "partition"},
		{"GET", "/v1/check?partition=3", "", 400, "partition"},
		{"GET", "/v1/check?partition=-1", "", 400, "partition"},
		{"GET", "/v1/check?partition=x", "", 400, "partition"},
		{"GET", "/v1/check?partition=4294967296", "", 400, "partition"},
		{"GET", "/v1/check?partition=0&partition=1", "", 400, "partition"},
		{"GET", "/v1/check?partition=0&token=0", "", 400, "token"},
		{"GET", "/v1/check?partition=0&token=-5", "", 400, "token"},
		{"GET", "/v1/check?partition=0&token=9007199254740992", "", 400, "token"},
		{"GET", "/v1/check?partition=0&token=00" + token, "", 400, "token"},
		{"GET", "/v1/check?partition=0&token=1e3", "", 400, "token"},
		{"GET", "/v1/check?partition=0&failed=x", "", 400, "parameter"},
		{"POST", "/v1/ready", `{"partition": 0}`, 400, "token"},
		{"POST", "/v1/release", `{"partition": 0}`, 400, "token"},
		{"POST", "/v1/release", `{"partition": 0, "token": ` + token + `}`, 400, "token"},
		{"POST", "/v1/release", `{"partition": 0, "token": "` + token + `", "why": "x"}`, 400, "parameter"},
		{"POST", "/v1/release?partition=0", `{"partition": 0, "token": "` + token + `"}`, 400, "partition"},
		{"POST", "/v1/release", `{"partition": null, "token": "` + token + `"}`, 400, "partition"},
		{"POST", "/v1/release", `[0]`, 400, "body"},
		{"POST", "/v1/release", `{"partition": 0`, 400, "body"},
		{"POST", "/v1/release", `{"partition": 0}{}`, 400, "body"},
		{"POST", "/v1/release", `{"partition": 0, "token": "` + token + `", "failed": "` + strings.Repeat("x", 600) + `"}`, 400, "failed"},
		{"POST", "/v1/release", strings.Repeat(" ", 5000), 413, "body"},
	} {
		var p apiProblem
		if got := w.ask(c.method, c.path, c.body, &p); got != c.status || p.Status != c.status || p.Field != c.field || p.Limit == "" || p.Detail == "" || p.Type == "" {
			w.t.Errorf("%s %s %.60q: %d %+v, want %d about %s", c.method, c.path, c.body, got, p, c.status, c.field)
		}
	}
	if l := w.leases(3); l.Leases[0].Token != token {
		w.t.Errorf("nonsense has changed something: %+v", l)
	}
}

// A partition that must move and is not released costs the command its life, and
// only then goes to the next one: nobody knows whether it still works on it.
func TestRunUnreleasedDrainKillsTheCommand(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	p, w := f.perWorker("w1", "trap '' TERM; while :; do read up _ </proc/uptime; echo \"$up 0 1 old\" >>"+f.evidence+"; sleep 0.02; done")
	w.leases(1)
	s := w.watch("")
	s.next()
	f.sidecar("w2", "say new; exec sleep 600")
	f.want(exitOK, "workers", "drain", "w1")
	_, l := s.wantNext("draining", 0)
	if l.ReleaseMs == nil || *l.ReleaseMs < 500 || *l.ReleaseMs > 2000 || l.State != "draining" {
		t.Errorf("draining %+v", l)
	}
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != sidecar.CodeLostLease || !strings.Contains(p.stderr.String(), "released in time") {
		t.Errorf("exit code %d, want %d\n%s", code, sidecar.CodeLostLease, p.stderr)
	}
	f.until("the next one", func() bool { return len(f.said("new")) > 0 })
	old := f.said("old")
	if last, first := old[len(old)-1].at, f.said("new")[0].at; last > first {
		t.Errorf("the old command lived until %v, the next one began at %v", last, first)
	}
}

// In a fenced keyspace the resource has the last word: the command hears of the
// end, and lives.
func TestRunFencedLossIsOnlyTold(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	f.keyspace = "loose"
	f.want(exitOK, "keyspace", "create", "loose", "--partitions", "1", "--ttl", "2s", "--handoff-timeout", "500ms", "--takeover", "fenced", "--initial-delay", "0s")
	p, w := f.perWorker("w1", "exec sleep 600")
	w.leases(1)
	s := w.watch("")
	s.next()
	f.sidecar("w2", "say new; exec sleep 600")
	f.want(exitOK, "workers", "drain", "w1")
	s.wantNext("draining", 0)
	if _, end := s.wantNext("ended", 0); end.Confirm || end.Cause != "drain_timeout" && end.Cause != "revoked" {
		t.Errorf("end %+v", end)
	}
	f.until("the next one", func() bool { return len(f.said("new")) > 0 })
	if l := w.leases(0); l.Keyspace != "loose" {
		t.Errorf("list %+v", l)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Wait()
}

// The command's end is the sidecar's, with its code, and gives everything back
// at once.
func TestRunPerWorkerEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	f := newField(t, 2, "--ttl", "10s")
	f.want(exitOK, "keyspace", "set", f.keyspace, "--restart-grace", "0s")
	p, w := f.perWorker("w1", "while ! [ -e "+f.evidence+" ]; do sleep 0.02; done; exit 7")
	w.leases(2)
	if err := os.WriteFile(f.evidence, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.cmd.Wait()
	if code := p.cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, want the command's 7\n%s", code, p.stderr)
	}
	out, _ := f.want(exitOK, "keyspace", "show", f.keyspace, "-o", "json")
	if !strings.Contains(out, `"owned": "0"`) {
		t.Errorf("%v after the command's end something is still held:\n%s", time.Since(began), out)
	}
}

// A command that ends before there is a session has its exit code as well.
func TestRunPerWorkerQuickCommand(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	for i := range 5 {
		p := startProgram(t, "run", "--server", f.server, "--keyspace", f.keyspace, "--id", fmt.Sprint("w", i), "--mode", "per-worker", "--", "sh", "-c", "exit 42")
		if code := p.code(); code != 42 {
			t.Errorf("run ended with %d\n%s", code, p.stderr)
		}
	}
}

// kill -9 of the sidecar: the command is gone, and so is the socket.
func TestRunPerWorkerCommandDiesWithItsSidecar(t *testing.T) {
	t.Parallel()
	f := newField(t, 1)
	p, w := f.perWorker("w1", "trap '' TERM; LEASEHOLD_PARTITION=0 LEASEHOLD_TOKEN=1; beat old")
	w.leases(1)
	f.until("the command", func() bool { return len(f.said("old")) > 3 })
	p.cmd.Process.Kill()
	f.silence("old")
	waitFor(t, "the socket's directory to go", func() bool {
		_, err := os.Stat(filepath.Dir(w.socket))
		return os.IsNotExist(err)
	})
}
