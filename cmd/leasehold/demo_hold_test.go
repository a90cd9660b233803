package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// promServer is a private Prometheus, or one in a container: its HTTP API.
type promServer struct {
	t   *testing.T
	url string
}

// startPrometheus runs the command line that people are told to run.
func startPrometheus(t *testing.T, command string) (*promServer, func()) {
	t.Helper()
	var log lockedBuffer
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &promServer{t, "http://" + regexp.MustCompile(`--web\.listen-address=(\S+)`).FindStringSubmatch(command)[1]}, func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Errorf("Prometheus had ended: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("Prometheus: %v\n%s", err, log.String())
		}
	}
}

// get asks for the data of an answer.
func (p *promServer) get(path string, into any) error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(p.url + path)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	answer := struct{ Data any }{into}
	if err := json.Unmarshal(raw, &answer); err != nil || r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s, %v: %s", path, r.Status, err, raw)
	}
	return nil
}

// until polls for up to two minutes; the last error is what is missing.
func (p *promServer) until(what string, ok func() error) bool {
	p.t.Helper()
	var err error
	for limit := time.Now().Add(2 * time.Minute); time.Now().Before(limit); <-time.After(200 * time.Millisecond) {
		if err = ok(); err == nil {
			return true
		}
	}
	p.t.Errorf("not within two minutes: %s: %v", what, err)
	return false
}

// targetsUp wants so many targets of each job, all of them up.
func (p *promServer) targetsUp(want map[string]int) error {
	var found struct {
		ActiveTargets []struct {
			Health, LastError string
			Labels            map[string]string
		}
	}
	if err := p.get("/api/v1/targets?state=active", &found); err != nil {
		return err
	}
	up := map[string]int{}
	for _, target := range found.ActiveTargets {
		if target.Health != "up" || target.Labels["cluster"] == "" {
			return fmt.Errorf("%v is %s %s", target.Labels, target.Health, target.LastError)
		}
		up[target.Labels["job"]]++
	}
	if fmt.Sprint(up) != fmt.Sprint(want) {
		return fmt.Errorf("targets %v, want %v", up, want)
	}
	return nil
}

// rulesWork wants every rule to have been evaluated without an error.
func (p *promServer) rulesWork() error {
	var found struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get("/api/v1/rules", &found); err != nil {
		return err
	}
	loaded := 0
	for _, g := range found.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				return fmt.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			}
			loaded++
		}
	}
	if want := rulesShipped(p.t); loaded != want || want == 0 {
		return fmt.Errorf("%d rules are loaded, not %d", loaded, want)
	}
	return nil
}

// rulesShipped counts those of deploy/prometheus.
func rulesShipped(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), "deploy", "prometheus", "*.rules.yml"))
	if err != nil {
		t.Error(err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		}
		n += len(regexp.MustCompile(`(?m)^[ -]*(alert|record):`).FindAll(raw, -1))
	}
	return n
}

// has wants a query to give something.
func (p *promServer) has(query string) error {
	var found struct{ Result []json.RawMessage }
	if err := p.get("/api/v1/query?query="+url.QueryEscape(query), &found); err != nil {
		return err
	}
	if len(found.Result) == 0 {
		return fmt.Errorf("%s gives nothing", query)
	}
	return nil
}

// What demo --hold prints is done: Prometheus is started so, sees everybody and has the
// rules, a worker that is killed comes back, and the audit finds the stream whole.
func TestDemoHoldCanBeLookedAt(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("prometheus"); err != nil {
		lacking(t, "no prometheus: %v", err)
	}
	bin := buildBinary(t)
	var told lockedBuffer
	looked, back := false, make(chan struct{})
	code, stdout, stderr := runBinary(t, bin, func(cmd *exec.Cmd, text []byte) {
		told.Write(text)
		if looked && strings.Contains(told.String(), "w1 is started again") && back != nil {
			close(back)
			back = nil
		}
		if looked || !strings.Contains(told.String(), "All of it ends with Ctrl-C.\n") {
			return
		}
		looked = true
		go func(back <-chan struct{}) {
			defer cmd.Process.Signal(os.Interrupt)
			lookAt(t, bin, &told, back)
		}(back)
	}, "demo", "--hold", "--no-story", "--workers", "3", "--partitions", "16")
	if code != exitOK || !looked {
		t.Errorf("exit code %d", code)
	}
	if t.Failed() {
		t.Logf("%s%s", stdout, stderr)
	}
}

func lookAt(t *testing.T, bin string, told *lockedBuffer, back <-chan struct{}) {
	line := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(told.String())
		if m == nil {
			t.Errorf("it does not tell %s:\n%s", pattern, told)
			return ""
		}
		return m[1]
	}
	// signal runs a command that it tells. A worker may have another pid by now: on a
	// busy machine one that did not get in at first is started again.
	signal := func(pattern, id string) {
		pids := regexp.MustCompile(`(?m)\b`+id+`\b.*\bpid (\d+)$`).FindAllStringSubmatch(told.String(), -1)
		if len(pids) == 0 {
			t.Errorf("it does not tell the pid of %s:\n%s", id, told)
			return
		}
		command := strings.ReplaceAll(line(pattern), pids[0][1], pids[len(pids)-1][1])
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	browser := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	page, err := browser.Get(line(`(?m)^  console +(\S+)`))
	if err != nil {
		t.Errorf("console: %v", err)
	} else if page.Body.Close(); page.StatusCode != http.StatusOK || !strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
		t.Errorf("console: %s, %s", page.Status, page.Header.Get("Content-Type"))
	}
	prom, stop := startPrometheus(t, line(`(?m)^  (prometheus --.*)$`))
	defer stop()
	want := map[string]int{"leasehold-server": 3, "leasehold-worker": 3}
	prom.until("all targets are up", func() error { return prom.targetsUp(want) })
	prom.until("the rules work", prom.rulesWork)
	for _, m := range regexp.MustCompile(`(?m)^  +(?:http\S+/graph +)?(\S.*leasehold_.*)$`).FindAllStringSubmatch(told.String(), -1) {
		prom.until("the query it tells has data", func() error { return prom.has(m[1]) })
	}
	signal(`(?m)^  (kill -9 \d+);`, "w1")
	select {
	case <-back:
	case <-time.After(2 * time.Minute):
		t.Errorf("a worker that was killed is not back")
	}
	signal(`(?m)^  (kill -STOP .*)$`, "w3")
	prom.until("all targets are up again", func() error { return prom.targetsUp(want) })
	// While the stream goes on, the audit wants what is older than a minute; there is nothing yet.
	audit := strings.Fields(line(`(?m)^  leasehold (demo audit --dir \S+)`))
	if out, err := exec.Command(bin, append(audit, "--end")...).CombinedOutput(); err != nil {
		t.Errorf("audit: %v: %s", err, out)
	}
}

func TestDemoHoldRefusesWhatItCannotHold(t *testing.T) {
	for _, c := range []struct{ want, args string }{
		{"--fenced or --strict", "demo --hold --fenced --strict"},
		{"--no-guard", "demo --hold --no-guard"},
		{"--no-story", "demo --no-story"},
	} {
		cl := &cli{}
		if _, errOut := cl.want(t, exitUsage, strings.Fields(c.args)...); !strings.Contains(errOut, c.want) {
			t.Errorf("%s: %s", c.args, errOut)
		}
	}
}
