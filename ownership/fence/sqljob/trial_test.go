package sqljob_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqljob"
)

var (
	trials = flag.Int("sqljob.trials", 80, "random interleavings per database; 1000 take a few minutes")
	seed   = flag.Uint64("sqljob.seed", 0, "seed of the interleavings, 0 for a random one")
)

// verdict is what the accounting rows of the trials say.
type verdict struct {
	trials, jobs, refused, crashed, retried int
	lost, twice                             int // jobs without effect, with several
	stale                                   int // effects under another token than the last that claimed the job
	first                                   string
}

func (v verdict) violations() int { return v.lost + v.twice + v.stale }

func (v *verdict) add(o verdict) {
	v.trials += o.trials
	v.jobs += o.jobs
	v.refused += o.refused
	v.crashed += o.crashed
	v.retried += o.retried
	v.lost += o.lost
	v.twice += o.twice
	v.stale += o.stale
	v.first = cmp.Or(v.first, o.first)
}

// An old owner, a new one and a newer one work on three jobs, in a random
// order of steps: claim, write, Done, commit or a crash in the middle of the
// transaction, a retry after it, and pauses anywhere. Then a last owner does
// what is left. Each job must have been done once, under the last token that
// claimed it.
func TestRandomInterleavings(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			v := runTrials(t, d, *trials, func(ctx context.Context, tx *sql.Tx, q *sqljob.Queue[int64], s fence.Stamp, id int64) error {
				return q.Done(ctx, tx, s, id)
			})
			if v.violations() > 0 || v.refused == 0 || v.crashed == 0 || v.retried == 0 {
				t.Errorf("violations, or no test of anything: %+v", v)
			}
			t.Logf("%+v", v)
		})
	}
}

// The checker can fail: with the usual Done, which only knows the id, the same
// trials show jobs done twice.
func TestWithoutTheTokenTheTrialShowsViolations(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			v := runTrials(t, d, min(*trials, 40), func(ctx context.Context, tx *sql.Tx, _ *sqljob.Queue[int64], _ fence.Stamp, id int64) error {
				_, err := tx.ExecContext(ctx, fmt.Sprintf("UPDATE leasehold_job SET state = 'done' WHERE id = %d", id))
				return err
			})
			if v.violations() == 0 {
				t.Errorf("the naive Done passed: %+v", v)
			}
			t.Logf("%+v", v)
		})
	}
}

type doneFunc func(context.Context, *sql.Tx, *sqljob.Queue[int64], fence.Stamp, int64) error

func runTrials(t *testing.T, d sqlfence.Dialect, n int, done doneFunc) verdict {
	db := fresh(t, d)
	q := db.queue(t)
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("-sqljob.seed=%d", from)
	atOnce := 6 // they wait for the server most of the time
	if d == sqlfence.SQLite {
		atOnce = 1 // one file has one writer
	}
	var next atomic.Int64
	verdicts := make(chan verdict, atOnce)
	for range atOnce {
		go func() {
			var v verdict
			defer func() { verdicts <- v }()
			for i := next.Add(1); i <= int64(n) && !t.Failed(); i = next.Add(1) {
				tr := &trial{t: t, db: db, q: q, rng: rand.New(rand.NewPCG(from, uint64(i))), done: done, v: &v, partition: uint32(i), last: map[int64]fence.Token{}}
				if err := tr.run(); err != nil {
					t.Errorf("trial %d: %v", i, err)
				}
			}
		}()
	}
	var sum verdict
	for range atOnce {
		sum.add(<-verdicts)
	}
	return sum
}

// trial has one goroutine per writer, which does one step when it is told to.
// A step that waits for a lock is left alone while others go on.
type trial struct {
	t         *testing.T
	db        database
	q         *sqljob.Queue[int64]
	rng       *rand.Rand
	done      doneFunc
	v         *verdict
	partition uint32
	last      map[int64]fence.Token // the highest token that has claimed a job
}

type writer struct {
	stamp   fence.Stamp
	release bool // gives its first job back before it does it
	crashes []bool
	step    chan struct{} // take the next step
	stepped chan bool     // it has been taken; false: it was the last

	claimed          []int64
	refused, retried int
	crashed          int
	err              error
}

// blocked is how long a step may take before it is thought to wait for a lock.
const blocked = 10 * time.Millisecond

func (tr *trial) run() error {
	var jobs [3]int64
	for i := range jobs {
		jobs[i] = int64(tr.partition)*10 + int64(i) + 1
		if _, err := tr.db.Exec(fmt.Sprintf("INSERT INTO leasehold_job (id, keyspace, partition_id) VALUES (%d, 'trial', %d)", jobs[i], tr.partition)); err != nil {
			return err
		}
	}
	var writers []*writer
	for i := range 3 {
		w := &writer{
			stamp:   fence.Stamp{Keyspace: "trial", Partition: tr.partition, Token: fence.Token(9 + i), Owner: fmt.Sprint("w", i)},
			release: tr.rng.IntN(4) == 0,
			step:    make(chan struct{}, 1),
			stepped: make(chan bool, 1),
		}
		for range 8 {
			w.crashes = append(w.crashes, tr.rng.IntN(4) == 0)
		}
		writers = append(writers, w)
		go func() {
			w.err = tr.write(w)
			w.stepped <- false
		}()
	}
	tr.schedule(writers)
	for _, w := range writers {
		if w.err != nil {
			return fmt.Errorf("%s: %w", w.stamp, w.err)
		}
		for _, id := range w.claimed {
			tr.last[id] = max(tr.last[id], w.stamp.Token)
		}
		tr.v.refused += w.refused
		tr.v.crashed += w.crashed
		tr.v.retried += w.retried
	}
	if err := tr.finish(); err != nil {
		return err
	}
	tr.v.trials++
	return tr.judge(jobs[:])
}

// schedule lets one writer after the other take a step, at random.
func (tr *trial) schedule(writers []*writer) {
	type state int
	const (
		idle state = iota
		waiting
		gone
	)
	states := make([]state, len(writers))
	settle := func(i int, more bool) {
		states[i] = gone
		if more {
			states[i] = idle
		}
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		var ready []int
		alive := false
		for i, w := range writers {
			if states[i] == waiting {
				select {
				case more := <-w.stepped:
					settle(i, more)
				default:
				}
			}
			alive = alive || states[i] != gone
			if states[i] == idle {
				ready = append(ready, i)
			}
		}
		if !alive {
			return
		}
		if len(ready) == 0 { // all wait for the locks of crashed ones, or are slow
			<-again.C
			continue
		}
		i := ready[tr.rng.IntN(len(ready))]
		writers[i].step <- struct{}{}
		timeout := time.NewTimer(blocked)
		select {
		case more := <-writers[i].stepped:
			settle(i, more)
		case <-timeout.C:
			states[i] = waiting
		}
		timeout.Stop()
	}
}

// write is the life of one owner.
func (tr *trial) write(w *writer) error {
	ctx := context.Background()
	<-w.step
	got, err := tr.q.Claim(ctx, w.stamp, 1+int(w.stamp.Token)%3)
	if err != nil {
		return err
	}
	w.claimed = ids(got)
	for n, id := range w.claimed {
		if n == 0 && w.release {
			w.pause()
			err := tr.q.Release(ctx, tr.db.DB, w.stamp, id)
			if errors.Is(err, fence.ErrStale) {
				w.refused++
			} else if err != nil && !errors.Is(err, sqljob.ErrEnded) { // ended: by a zombie's naive Done
				return err
			}
			continue
		}
		for try := range 2 {
			w.pause()
			crash := w.crashes[2*n+try]
			err := tr.attempt(ctx, w, id, crash)
			if errors.Is(err, fence.ErrStale) {
				w.refused++
				break
			}
			if err != nil {
				return err
			}
			if !crash {
				break
			}
			w.crashed++
			if try == 0 {
				w.retried++
			}
		}
	}
	return nil
}

// attempt does a job in a transaction, or crashes in its middle.
func (tr *trial) attempt(ctx context.Context, w *writer, id int64, crash bool) error {
	tx, err := tr.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects VALUES (%d, %d)", id, w.stamp.Token)); err != nil {
		return err
	}
	// SQLite has one writer at a time: a pause in here would only stop the
	// others.
	paused := tr.db.dialect != sqlfence.SQLite
	if paused {
		w.pause()
	}
	if err := tr.done(ctx, tx, tr.q, w.stamp, id); err != nil {
		return err
	}
	if paused {
		w.pause()
	}
	if crash { // the connection goes, and the client says nothing more
		if tr.db.dialect == sqlfence.SQLite {
			return tx.Rollback()
		}
		return tr.db.kill(tx)
	}
	return tx.Commit()
}

func (w *writer) pause() {
	w.stepped <- true
	<-w.step
}

// finish is the last owner. A crashed connection's locks may outlive it for a
// moment, and claims pass over them.
func (tr *trial) finish() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := fence.Stamp{Keyspace: "trial", Partition: tr.partition, Token: 100, Owner: "last"}
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for ; ; <-again.C {
		jobs, err := tr.q.Claim(ctx, s, 10)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			tr.last[j.ID] = s.Token
			if err := run(ctx, tr.db.DB, tr.q, s, j.ID); err != nil {
				return err
			}
		}
		var left int
		query := fmt.Sprintf("SELECT count(*) FROM leasehold_job WHERE keyspace = 'trial' AND partition_id = %d AND state <> 'done'", tr.partition)
		if err := tr.db.QueryRowContext(ctx, query).Scan(&left); err != nil || left == 0 {
			return err
		}
	}
}

func (tr *trial) judge(jobs []int64) error {
	tr.v.jobs += len(jobs)
	rows, err := tr.db.Query(fmt.Sprintf("SELECT job, token FROM effects WHERE job BETWEEN %d AND %d", jobs[0], jobs[len(jobs)-1]))
	if err != nil {
		return err
	}
	defer rows.Close()
	effects := map[int64][]fence.Token{}
	for rows.Next() {
		var job, token int64
		if err := rows.Scan(&job, &token); err != nil {
			return err
		}
		effects[job] = append(effects[job], fence.Token(token))
	}
	for _, id := range jobs {
		tokens, before := effects[id], tr.v.violations()
		switch {
		case len(tokens) == 0:
			tr.v.lost++
		case len(tokens) > 1:
			tr.v.twice++
		case tokens[0] != tr.last[id]:
			tr.v.stale++
		}
		if before == 0 && tr.v.violations() > 0 {
			tr.v.first = fmt.Sprintf("trial %d: job %d has effects of %v, last claimed under %d", tr.partition, id, tokens, tr.last[id])
		}
	}
	return rows.Err()
}
