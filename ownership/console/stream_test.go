package console

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestMain(m *testing.M) {
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// serve runs a console behind a real HTTP server. stop ends the console alone, and
// returns when it has ended.
func serve(t *testing.T, c *Console) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	srv := httptest.NewServer(c.Handler())
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() {
		stop()
		srv.Close()
	})
	return srv.URL, stop
}

// watch opens the feed and hands over its header, its messages, and what follows them.
func watch(t *testing.T, url string) (head http.Header, next func() string, rest io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/ui/feed?keyspace=a", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	in := bufio.NewReader(resp.Body)
	return resp.Header, func() string {
		t.Helper()
		msg := ""
		for !strings.HasSuffix(msg, "\n\n") {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatalf("the stream ends after %q: %v", msg, err)
			}
			msg += line
		}
		return msg
	}, in
}

// Over a real connection: hello, the whole picture, then what changes; and the end
// of the server ends it at once.
func TestStream(t *testing.T) {
	w := newWorld(t)
	w.keyspace("a", 3)
	w.session(1, "w1", "a")
	c := w.console(t, func(c *Config) { c.Interval = time.Millisecond })
	url, stop := serve(t, c)
	head, next, rest := watch(t, url)
	if got := head.Get("Content-Type"); got != "text/event-stream; charset=utf-8" || head.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", head)
	}
	hello := next()
	want := `event: hello` + "\n" + `data: {"protocol":1,"server":"s1","cluster_id":"c","version":"v1","operator":false,"cli_server":"127.0.0.1:7400"}` + "\n\n"
	if hello != want {
		t.Errorf("hello is %q", hello)
	}
	p := &page{}
	if err := p.take([]byte(next())); err != nil || p.fulls != 1 || len(p.owner) != 3 || p.owner[1] != -1 {
		t.Fatalf("%+v, %v", p, err)
	}
	w.move("a", 1, 1)
	for p.owner[1] < 0 {
		if err := p.take([]byte(next())); err != nil {
			t.Fatal(err)
		}
	}
	if p.owners[p.owner[1]] != "w1" || p.state[1] != 1 || p.fulls != 1 {
		t.Errorf("%+v", p)
	}
	stop()
	if _, err := io.ReadAll(rest); err != nil {
		t.Errorf("the end: %v", err)
	}
	again, err := http.Get(url + "/ui/feed")
	if err != nil {
		t.Fatal(err)
	}
	defer again.Body.Close()
	if text, _ := io.ReadAll(again.Body); again.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "stopping") {
		t.Errorf("after the end: %d %s", again.StatusCode, text)
	}
}

// The number of consoles is bounded, and who leaves makes room.
func TestTooManyViewers(t *testing.T) {
	h := newWorld(t).console(t).hub
	var last *viewer
	for range maxViewers {
		v, full, stopped := h.join("")
		if full || stopped {
			t.Fatal("refused below the limit")
		}
		last = v
	}
	c := &Console{cfg: *h.cfg, hub: h, log: h.cfg.Logger}
	out := httptest.NewRecorder()
	c.Handler().ServeHTTP(out, httptest.NewRequest(http.MethodGet, "/ui/feed", http.NoBody))
	if out.Code != http.StatusServiceUnavailable || !strings.Contains(out.Body.String(), "64 consoles are open") || out.Header().Get("Retry-After") == "" {
		t.Errorf("one too many: %d %s", out.Code, out.Body)
	}
	h.leave(last)
	if _, full, _ := h.join(""); full {
		t.Error("no room after one has left")
	}
}

// A viewer that does not read is given the whole picture when it does, and what
// waits for it is bounded meanwhile.
func TestSlowViewer(t *testing.T) {
	w := newWorld(t)
	w.keyspace("a", 4)
	w.session(1, "w1", "a")
	w.session(2, "w2", "a")
	h := w.console(t).hub
	v, _, _ := h.join("a")
	v.take()
	for i := range 3 * maxQueued {
		w.move("a", 0, state.SessionID(1+i%2))
		h.tick()
		if len(v.queue) > maxQueued {
			t.Fatalf("%d messages wait", len(v.queue))
		}
	}
	if !v.behind || len(v.queue) > 0 {
		t.Fatalf("behind %v with %d messages waiting", v.behind, len(v.queue))
	}
	v.take()
	h.tick()
	msgs, _ := v.take()
	p := &page{}
	if len(msgs) != 1 {
		t.Fatalf("%d messages", len(msgs))
	}
	if err := p.take(msgs[0]); err != nil || p.fulls != 1 || p.owners[p.owner[0]] != "w2" {
		t.Errorf("%+v, %v", p, err)
	}
}

// All viewers of a keyspace get the same bytes.
func TestEncodedOnce(t *testing.T) {
	w := newWorld(t)
	w.keyspace("a", 4)
	w.session(1, "w1", "a")
	h := w.console(t).hub
	a, _, _ := h.join("a")
	b, _, _ := h.join("a")
	for i := range uint32(3) {
		a.take()
		b.take()
		w.move("a", i, 1)
		h.tick()
		if len(a.queue) != 1 || len(b.queue) != 1 || &a.queue[0][0] != &b.queue[0][0] {
			t.Fatalf("round %d: %d and %d messages, encoded for each", i, len(a.queue), len(b.queue))
		}
	}
}

// What only ages is told once a second, and something is said every five; nobody
// watches, nothing is looked at.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.keyspace("a", 2)
		w.session(1, "w1", "a")
		looks := 0
		c := w.console(t, func(c *Config) {
			begin := time.Now()
			c.Wall = func() time.Time { looks++; return w.begin.Add(time.Since(begin)) }
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		if looks != 0 {
			t.Errorf("%d looks while nobody watched", looks)
		}
		v, _, _ := c.hub.join("a")
		v.take() // nothing yet: asks for the whole picture
		count := func(span time.Duration) (msgs int) {
			for range int(span / (100 * time.Millisecond)) {
				got, _ := v.take()
				msgs += len(got)
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
			}
			return msgs
		}
		if got := count(time.Second); got != 1 {
			t.Errorf("%d messages in the first second, not the whole picture alone", got)
		}
		if got := count(20 * time.Second); got < 3 || got > 5 {
			t.Errorf("%d messages in twenty quiet seconds", got)
		}
		moves := 0
		for range 40 {
			w.move("a", 0, 1)
			moves += count(100 * time.Millisecond)
		}
		if moves < 6 || moves > 9 {
			t.Errorf("%d messages in four busy seconds, not two a second", moves)
		}
		c.hub.leave(v)
		time.Sleep(time.Minute)
		synctest.Wait()
		was := looks
		time.Sleep(time.Hour)
		if looks != was {
			t.Error("it looks while nobody watches")
		}
		cancel()
		<-done
	})
}

// Looks that cost much come less often, and one that had to wait for the processor
// changes nothing.
func TestPaceGoesByTheCost(t *testing.T) {
	h := newWorld(t).console(t).hub
	for _, c := range []struct {
		costs [4]time.Duration
		want  time.Duration
	}{
		{[4]time.Duration{time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond}, 500 * time.Millisecond},
		{[4]time.Duration{time.Second, 12 * time.Millisecond, time.Second, time.Second}, 500 * time.Millisecond},
		{[4]time.Duration{50 * time.Millisecond, 60 * time.Millisecond, 90 * time.Millisecond, 50 * time.Millisecond}, 2 * time.Second},
		{[4]time.Duration{time.Minute, time.Minute, time.Minute, time.Minute}, slowest},
	} {
		if h.costs = c.costs; h.pace() != c.want {
			t.Errorf("after %v the next look is in %v, not %v", c.costs, h.pace(), c.want)
		}
	}
}

// Without a leader, and on a follower, the state is told with its age; what only the
// leader knows is not there.
func TestFollowerSaysWhatItKnows(t *testing.T) {
	w := newWorld(t)
	w.keyspace("a", 2)
	w.session(1, "w1", "a")
	h := w.console(t).hub
	v, _, _ := h.join("a")
	v.take()
	w.leader, w.age = "", 7*time.Second
	h.tick()
	msgs, _ := v.take()
	p := &page{}
	if err := p.take(msgs[0]); err != nil {
		t.Fatal(err)
	}
	var cluster clusterRow
	var workers []map[string]any
	if err := json.Unmarshal(p.sections["cluster"], &cluster); err != nil {
		t.Fatal(err)
	}
	if cluster.Leader != "" || cluster.Leading || cluster.AgeMS != 7000 || cluster.Ready || !strings.Contains(cluster.NotReadyReason, "no leader") {
		t.Errorf("cluster %+v", cluster)
	}
	if err := json.Unmarshal(p.sections["workers"], &workers); err != nil || len(workers) != 1 {
		t.Fatalf("%v, %v", workers, err)
	}
	if _, told := workers[0]["running"]; told || workers[0]["held"] != 0.0 || workers[0]["margin"] != 1.0 {
		t.Errorf("worker %v", workers[0])
	}
}

// A keyspace with more partitions than can be shown is told by its number alone.
func TestTooManyPartitions(t *testing.T) {
	w := newWorld(t)
	w.keyspace("a", mostShown+1)
	h := w.console(t).hub
	v, _, _ := h.join("a")
	v.take()
	h.tick()
	msgs, _ := v.take()
	if !strings.Contains(string(msgs[0]), `"partitions":{"n":131073,"omitted":true}`) {
		t.Errorf("%.300s", msgs[0])
	}
}

// BenchmarkTick is one look for ten viewers, with a hundred partitions moved since
// the last.
func BenchmarkTick(b *testing.B) {
	for _, n := range []uint32{4096, 65536} {
		for _, moved := range []uint32{0, 100} {
			b.Run(strings.Join([]string{itoa(n), "partitions", itoa(moved), "moved"}, " "), func(b *testing.B) {
				w := newWorld(b)
				w.keyspace("a", n)
				for i := range 100 {
					w.session(state.SessionID(i+1), "w"+itoa(uint32(i)), "a")
				}
				for p := range n {
					w.move("a", p, state.SessionID(1+p%100))
				}
				h := w.console(b).hub
				var viewers []*viewer
				for range 10 {
					v, _, _ := h.join("a")
					v.take()
					viewers = append(viewers, v)
				}
				for i := range uint32(b.N) {
					b.StopTimer()
					for p := range moved {
						w.move("a", (i*moved+p)%n, state.SessionID(1+(i+p)%100))
					}
					b.StartTimer()
					h.tick()
					for _, v := range viewers {
						v.take()
						v.take()
					}
				}
			})
		}
	}
}

func itoa(n uint32) string { return string(encode(n)) }
