package server

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// send makes one request without following redirects.
func send(t *testing.T, s *Server, method, path, body string, headers ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addrs().HTTP+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text), resp.Header
}

const (
	drainPath = "/leasehold.v1.WorkerService/DrainWorker"
	html      = "text/html,application/xhtml+xml,*/*;q=0.8"
)

// What the port does with browsers and with others, in each mode.
func TestConsoleModes(t *testing.T) {
	for mode, want := range map[string]struct {
		index, ui, drain int
	}{
		"":             {http.StatusFound, 200, 200}, // on loopback
		ConsoleOperate: {http.StatusFound, 200, 200},
		ConsoleRead:    {http.StatusFound, 200, 403},
		ConsoleOff:     {200, 404, 403},
	} {
		t.Run("mode "+mode, func(t *testing.T) {
			c := newCluster(t, 1)
			c.configs[0].Console = mode
			c.startAll()
			s := c.running[0].Server
			cl := c.client()
			createKeyspace(t, cl, "k", 2, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
			newCrew(t, c.servers()).join("w1", "k")
			eventually(t, 10*time.Second, "w1 is known", func() bool {
				_, err := cl.Workers().UndrainWorker(t.Context(), &leaseholdv1.UndrainWorkerRequest{Id: "w1"})
				return err == nil
			})
			if code, _, h := send(t, s, "GET", "/", "", "Accept", html); code != want.index || code == 302 && h.Get("Location") != "/ui/" {
				t.Errorf("a browser's /: %d %v", code, h)
			}
			if code, text, _ := send(t, s, "GET", "/", "", "Accept", "*/*"); code != 200 || !strings.Contains(text, `"/ui/"`) {
				t.Errorf("curl's /: %d %s", code, text)
			}
			if code, text, _ := send(t, s, "GET", "/ui/", ""); code != want.ui || code == 404 && !strings.Contains(text, "--console off") {
				t.Errorf("/ui/: %d %s", code, text)
			}
			const json, browser = "application/json", "same-origin"
			if code, text, _ := send(t, s, "POST", drainPath, `{"id":"w1"}`, "Content-Type", json, "Sec-Fetch-Site", browser); code != want.drain {
				t.Errorf("a browser drains: %d %s", code, text)
			}
			if code, text, _ := send(t, s, "POST", drainPath, `{"id":"w1"}`, "Content-Type", json); code != 200 {
				t.Errorf("curl drains: %d %s", code, text)
			}
			if _, err := cl.Workers().UndrainWorker(t.Context(), &leaseholdv1.UndrainWorkerRequest{Id: "w1"}); err != nil {
				t.Errorf("the client undrains: %v", err)
			}
			if code, _, _ := send(t, s, "POST", drainPath, `{"id":"w1"}`, "Content-Type", json, "Sec-Fetch-Site", "cross-site"); code != 403 {
				t.Errorf("another site drains: %d", code)
			}
			if code, _, _ := send(t, s, "POST", "/v3/kv/put", `{"key":"YQ==","value":"YQ=="}`, "Origin", "https://evil.example"); code != 403 {
				t.Errorf("another site writes a key: %d", code)
			}
			if code, _, _ := send(t, s, "GET", "/ui/feed", "", "Host", "evil.example"); code != 403 {
				t.Errorf("a rebound name: %d", code)
			}
		})
	}
}

// An open console does not hold up the end of a server.
func TestOpenConsoleDoesNotHoldUpTheEnd(t *testing.T) {
	c := newCluster(t, 1)
	c.configs[0].ShutdownTimeout = time.Minute
	c.startAll()
	s := c.running[0].Server
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addrs().HTTP+"/ui/feed", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for line := ""; !strings.HasPrefix(line, "event: full"); {
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	c.stopServer(0)
	if _, err := io.ReadAll(in); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second { // what is open after a second is cut off
		t.Errorf("the end took %v", took)
	}
}

func TestConsoleDefaultFollowsTheListener(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:7480": ConsoleOperate, "[::1]:7480": ConsoleOperate, "localhost:7480": ConsoleOperate,
		"10.0.0.1:7480": ConsoleRead, ":7480": ConsoleRead, "0.0.0.0:7480": ConsoleRead,
	} {
		cfg := DefaultConfig()
		cfg.HTTPAddr = addr
		if got := cfg.console(); got != want {
			t.Errorf("%s: %s, not %s", addr, got, want)
		}
		cfg.Console = ConsoleOff
		if got := cfg.console(); got != ConsoleOff {
			t.Errorf("%s: %s, though it was set to off", addr, got)
		}
	}
}
