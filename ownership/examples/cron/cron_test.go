package main

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/examples/internal/exampletest"
)

var soak = flag.Duration("soak", 6*time.Second, "how long TestKillPauseAndRestart makes trouble")

const ttl = 2 * time.Second

// fired returns, for each job, the ticks that its target has carried out and
// how often, as Unix seconds.
func fired(t *testing.T, s *store) map[string]map[int64]int {
	t.Helper()
	rows, err := s.db.QueryContext(t.Context(), `SELECT job, extract(epoch FROM tick)::bigint FROM fired`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	by := map[string]map[int64]int{}
	for rows.Next() {
		var job string
		var tick int64
		if err := rows.Scan(&job, &tick); err != nil {
			t.Fatal(err)
		}
		if by[job] == nil {
			by[job] = map[int64]int{}
		}
		by[job][tick]++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return by
}

// Jobs of every second, while workers are killed, paused and restarted, and
// once are all paused together. Each tick fires at most once; of policy all
// none is missing; of the others those are missing that nobody was there for.
func TestKillPauseAndRestart(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))

	dsn := database(t)
	bin := exampletest.Build(t, "ownership/examples/cron")
	cluster := exampletest.StartCluster(t, "cron", 4, ttl)
	do := func(args ...string) {
		t.Helper()
		p := exampletest.Start(t, args[0], bin, args...)
		if p.Err() != nil {
			t.Fatalf("cron %v: %v\n%s", args, p.Err(), p.Output())
		}
	}
	do("migrate", "--db", dsn)
	target := exampletest.Start(t, "target", bin, "target", "--db", dsn, "--listen", "127.0.0.1:0").Await("listening on ")
	policies := map[string]string{"bill": missedAll, "report": missedAll, "clean": missedSkip, "sync": missedOnce}
	for name, missed := range policies {
		do("add", "--db", dsn, "--name", name, "--schedule", "* * * * * *", "--missed", missed, "--target", target)
	}
	s := opened(t, dsn)
	start := func(id string) *exampletest.Process {
		return exampletest.Start(t, id, bin, "run", "--db", dsn, "--servers", cluster.Server, "--id", id)
	}
	ids := []string{"w1", "w2", "w3"}
	workers := map[string]*exampletest.Process{}
	for _, id := range ids {
		workers[id] = start(id)
	}
	exampletest.Eventually(t, 30*time.Second, "all jobs fire", func() bool { return len(fired(t, s)) == len(policies) })

	deadline := time.Now().Add(*soak)
	tally := map[string]int{}
	for i := 0; time.Now().Before(deadline); i++ {
		id := ids[random.IntN(len(ids))]
		p := workers[id]
		select {
		case <-p.Done():
			t.Fatalf("%s has ended by itself: %v\n%s", id, p.Err(), p.Output())
		case <-time.After(time.Duration(200+random.IntN(500)) * time.Millisecond):
		}
		if i%4 == 3 {
			cluster.Forgive()
		}
		what := []string{"kill", "pause", "stop", "pause"}[i%4]
		tally[what]++
		switch what {
		case "kill":
			p.Kill()
			workers[id] = start(id)
		case "pause":
			p.Pause()
			<-time.After(time.Duration(random.Int64N(int64(2 * ttl)))) // shorter and longer than its lease
			p.Resume()
		case "stop":
			if err := p.Terminate(); err != nil {
				t.Errorf("%s after SIGTERM: %v", id, err)
			}
			workers[id] = start(id)
		}
	}
	for _, p := range workers {
		p.Pause()
	}
	dark := now(t, s)
	<-time.After(5 * time.Second) // nobody is there
	light := now(t, s)
	for _, p := range workers {
		p.Resume()
	}
	cluster.Forgive()
	exampletest.Eventually(t, 30*time.Second, "all jobs fire again", func() bool {
		by := fired(t, s)
		for job := range policies {
			again := false
			for tick := range by[job] {
				again = again || tick > light+1
			}
			if !again {
				return false
			}
		}
		return true
	})
	for _, p := range workers {
		if err := p.Terminate(); err != nil { // what was decided is posted first, or never
			t.Errorf("after SIGTERM: %v", err)
		}
	}
	judge(t, s, policies, dark, light-1, tally)
}

// judge looks at each job between its first tick and its last. Ticks after dark
// and before light could not be decided in time.
func judge(t *testing.T, s *store, policies map[string]string, dark, light int64, tally map[string]int) {
	t.Helper()
	for job, ticks := range fired(t, s) {
		first, last, total := int64(1<<62), int64(0), 0
		for tick, n := range ticks {
			first, last, total = min(first, tick), max(last, tick), total+n
			if n != 1 {
				t.Errorf("%s: the tick of second %d fired %d times", job, tick, n)
			}
		}
		missing, inTheDark := 0, 0
		for tick := first; tick <= last; tick++ {
			if ticks[tick] == 0 {
				missing++
			} else if tick > dark && tick < light {
				inTheDark++
			}
		}
		t.Logf("%-6s %-4s %d ticks in %d s, %d missing, %d of the dark; %v", job, policies[job], total, last-first+1, missing, inTheDark, tally)
		switch policies[job] {
		case missedAll:
			if missing > 0 {
				t.Errorf("%s: %d ticks never fired", job, missing)
			}
		case missedSkip, missedOnce:
			if inTheDark > 1 { // one: a worker had decided it and was paused before the post
				t.Errorf("%s: %d ticks fired that nobody was there for", job, inTheDark)
			}
		}
	}
}

// now is the database's second.
func now(t *testing.T, s *store) (second int64) {
	t.Helper()
	if err := s.db.QueryRowContext(t.Context(), `SELECT floor(extract(epoch FROM cron_now()))::bigint`).Scan(&second); err != nil {
		t.Fatal(err)
	}
	return second
}
