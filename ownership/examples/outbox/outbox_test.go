package main

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/examples/internal/exampletest"
)

var soak = flag.Duration("soak", 8*time.Second, "how long TestKillAndPause makes trouble")

const ttl = 2 * time.Second

// rig is a cluster, an outbox and a receiver, all as real processes.
type rig struct {
	t        *testing.T
	cluster  *exampletest.Cluster
	bin      string
	outbox   *guarded
	inbox    *guarded
	dsn      string
	endpoint string
	noFence  []string
}

func newRig(t *testing.T, partitions int, noFence bool) *rig {
	t.Helper()
	inboxDSN := database(t, "inbox")
	r := &rig{t: t, dsn: database(t, "outbox"), bin: exampletest.Build(t, "ownership/examples/outbox")}
	if noFence {
		r.noFence = []string{"--no-fence"}
	}
	r.cluster = exampletest.StartCluster(t, "outbox", partitions, ttl)
	r.run("migrate", "--db", r.dsn, "--partitions", strconv.Itoa(partitions))
	receiver := r.start("receiver", append([]string{"receive", "--db", inboxDSN, "--listen", "127.0.0.1:0"}, r.noFence...)...)
	r.endpoint = receiver.Await("listening on ")
	r.outbox, r.inbox = opened(t, r.dsn, noFence), opened(t, inboxDSN, noFence)
	return r
}

func (r *rig) start(name string, args ...string) *exampletest.Process {
	r.t.Helper()
	return exampletest.Start(r.t, name, r.bin, args...)
}

// run runs a command that ends by itself.
func (r *rig) run(args ...string) {
	r.t.Helper()
	p := r.start(args[0], args...)
	<-p.Done()
	if err := p.Err(); err != nil {
		r.t.Fatalf("outbox %s: %v\n%s", args[0], err, p.Output())
	}
}

func (r *rig) relay(id, endpoint string) *exampletest.Process {
	r.t.Helper()
	return r.start(id, append([]string{"relay", "--db", r.dsn, "--servers", r.cluster.Server, "--id", id, "--endpoint", endpoint}, r.noFence...)...)
}

func (r *rig) produce(events, keys int) {
	r.t.Helper()
	r.run("produce", "--db", r.dsn, "--events", strconv.Itoa(events), "--keys", strconv.Itoa(keys), "--producers", "4")
}

func count(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitDelivery waits until relays have noted all events as delivered.
func (r *rig) awaitDelivery() {
	r.t.Helper()
	exampletest.Eventually(r.t, 30*time.Second, "everything is delivered", func() bool {
		return count(r.t, r.outbox.db, `SELECT sum(last_seq) - (SELECT sum(delivered) FROM outbox_progress) FROM outbox_partition`) == 0
	})
}

// damage compares what the receiver has accepted with what was committed: each
// account's versions must be there, once, in order.
func (r *rig) damage() (lost, twice, disorder int) {
	r.t.Helper()
	rows, err := r.inbox.db.QueryContext(r.t.Context(), `SELECT key, (payload->>'version')::bigint FROM inbox ORDER BY position`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	accepted := map[string][]int{}
	for rows.Next() {
		var key string
		var version int
		if err := rows.Scan(&key, &version); err != nil {
			r.t.Fatal(err)
		}
		if v := accepted[key]; slices.Contains(v, version) {
			twice++
		}
		if v := accepted[key]; len(v) > 0 && version < v[len(v)-1] {
			disorder++
		}
		accepted[key] = append(accepted[key], version)
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	committed, err := r.outbox.db.QueryContext(r.t.Context(), `SELECT key, version FROM account`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer committed.Close()
	for committed.Next() {
		var key string
		var version int
		if err := committed.Scan(&key, &version); err != nil {
			r.t.Fatal(err)
		}
		for v := 1; v <= version; v++ {
			if !slices.Contains(accepted[key], v) {
				lost++
			}
		}
	}
	return lost, twice, disorder
}

// slowLink is the network between one relay and the receiver. It keeps the first
// delivery of one event on its way until it is told to let go.
type slowLink struct {
	*httptest.Server
	held    chan struct{} // closed when the delivery is on its way
	letGo   chan struct{} // close it
	answer  chan int      // the status that the receiver gave in the end
	holding sync.Once
}

func newSlowLink(t *testing.T, to string, seq int64) *slowLink {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l := &slowLink{held: make(chan struct{}), letGo: make(chan struct{}), answer: make(chan int, 1)}
	forward := httputil.NewSingleHostReverseProxy(target)
	transport := &http.Transport{}
	forward.Transport = transport
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // the relay has gone
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		var e event
		if json.Unmarshal(body, &e) == nil && e.Seq == seq {
			l.holding.Do(func() {
				close(l.held)
				<-l.letGo
				rec := httptest.NewRecorder()
				forward.ServeHTTP(rec, req)
				l.answer <- rec.Code
				w.WriteHeader(rec.Code)
				body = nil
			})
			if body == nil {
				return
			}
		}
		forward.ServeHTTP(w, req)
	}))
	t.Cleanup(func() { l.Close(); transport.CloseIdleConnections() })
	return l
}

// O-13: a relay is paused while a delivery of it is on its way; another takes
// over, delivers that event and later ones; then the old delivery arrives. With
// the fence it is refused. Without, the receiver has an old event after newer
// ones: this shows that the test can see damage.
func TestDelayedDelivery(t *testing.T) {
	for _, c := range []struct {
		name    string
		noFence bool
		status  int
		damaged bool
	}{
		{"fenced", false, http.StatusConflict, false},
		{"unfenced", true, http.StatusNoContent, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			r := newRig(t, 1, c.noFence)
			link := newSlowLink(t, r.endpoint, 2)
			a := r.relay("a", link.URL)
			r.cluster.AwaitOwner(0, "a")
			r.produce(5, 1)
			<-link.held
			a.Pause()
			r.relay("b", r.endpoint)
			r.cluster.AwaitOwner(0, "b")
			r.awaitDelivery()
			close(link.letGo)
			if status := <-link.answer; status != c.status {
				t.Errorf("the old delivery was answered %d, want %d", status, c.status)
			}
			a.Resume() // it finds out, and stays a member
			r.cluster.AwaitWorkers(2)
			r.produce(5, 1)
			r.awaitDelivery()
			lost, twice, disorder := r.damage()
			if damaged := twice > 0 && disorder > 0; lost > 0 || damaged != c.damaged || !c.damaged && twice+disorder > 0 {
				t.Errorf("%d events lost, %d accepted twice, %d out of order; want damage %v", lost, twice, disorder, c.damaged)
			}
		})
	}
}

// Producers run while relays are killed, paused and stopped at random. At the
// end the receiver has every event once, in order.
func TestKillAndPause(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, 8, false)
	relays := map[string]*exampletest.Process{}
	ids := []string{"r1", "r2", "r3"}
	for _, id := range ids {
		relays[id] = r.relay(id, r.endpoint)
	}
	deadline := time.Now().Add(*soak)
	producing := make(chan error, 1)
	go func() {
		p := opened(t, r.dsn, false).db
		for time.Now().Before(deadline) {
			if err := produce(t.Context(), p, 50, 20, 4); err != nil {
				producing <- err
				return
			}
		}
		producing <- nil
	}()
	tally := map[string]int{}
	for i := 0; time.Now().Before(deadline); i++ {
		id := ids[random.IntN(len(ids))]
		p := relays[id]
		select {
		case <-p.Done():
			t.Fatalf("%s has ended by itself: %v\n%s", id, p.Err(), p.Output())
		case <-time.After(time.Duration(200+random.IntN(800)) * time.Millisecond):
		}
		if i%4 == 3 {
			r.cluster.Forgive()
		}
		switch what := []string{"kill", "pause", "stop", "pause"}[i%4]; what {
		case "kill":
			tally[what]++
			p.Kill()
			relays[id] = r.relay(id, r.endpoint)
		case "pause":
			tally[what]++
			p.Pause()
			<-time.After(time.Duration(random.Int64N(int64(2 * ttl)))) // shorter and longer than its lease
			p.Resume()
		case "stop":
			tally[what]++
			if err := p.Terminate(); err != nil {
				t.Errorf("%s after SIGTERM: %v", id, err)
			}
			relays[id] = r.relay(id, r.endpoint)
		}
	}
	if err := <-producing; err != nil {
		t.Fatal(err)
	}
	r.cluster.Forgive()
	r.awaitDelivery()
	lost, twice, disorder := r.damage()
	summary := fmt.Sprintf("%d events, %v; %d lost, %d accepted twice, %d out of order", count(t, r.inbox.db, `SELECT count(*) FROM inbox`), tally, lost, twice, disorder)
	if t.Log(summary); lost+twice+disorder > 0 {
		t.Error(summary)
	}
}
