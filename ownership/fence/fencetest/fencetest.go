package fencetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

var (
	flagTrials = flag.Int("fencetest.trials", 0, "random interleavings per resource (default: what the test asks for)")
	flagSeed   = flag.Uint64("fencetest.seed", 0, "seed of the interleavings (default: a fixed one)")
)

// Resource is what a trial shakes. Its methods are called by several owners at
// once. A resource whose guard has been taken out accepts every Claim.
type Resource interface {
	// Claim is what a new owner does before it works.
	Claim(ctx context.Context, stamps []fence.Stamp) error
	// Begin does all of a write but its last step: in a database it begins the
	// transaction, calls the guard and inserts the row. A resource with writes
	// of one step only prepares it. An error that matches fence.ErrStale is a
	// refusal; any other leaves nothing behind.
	Begin(ctx context.Context, s fence.Stamp) (Write, error)
	// Accepted returns the stamps of all writes that the resource has accepted
	// in this trial, in the order in which it did.
	Accepted(ctx context.Context) ([]fence.Stamp, error)
}

// Write is a write in progress.
type Write interface {
	// Commit does the last step. nil means accepted; an error that matches
	// fence.ErrStale means refused; any other leaves the outcome open.
	Commit(ctx context.Context) error
	// Crash is the death of the writer at this point: whatever it holds is
	// dropped as the kernel would drop it, without a word of good-bye.
	Crash()
}

// Options of Run. The zero value is fine.
type Options struct {
	Trials   int           // 0: 1,000; the flag -fencetest.trials wins
	Seed     uint64        // 0: a fixed one; the flag -fencetest.seed wins
	Writers  int           // owners in a trial; 0: 3
	Parallel int           // trials at a time; 0: 1
	Blocked  time.Duration // a step that takes longer is taken to wait for another owner; 0: 2 ms
	Patience time.Duration // for the last write of the newest owner; 0: 30 s
}

// Report says what Run saw.
type Report struct {
	Trials   int
	Writes   int // begun
	Accepted int // found at the resource
	Refused  int // claims and writes that were refused as stale
	Crashed  int // writers that died in the middle of a write
	Failed   int // steps with another error, such as a deadlock's victim
	Stale    int // accepted below an accepted token or a completed claim
	// Untrue counts answers that the resource's own record contradicts: a write
	// reported as accepted that is not there, or refused and there all the same.
	Untrue int
	// Blocked counts trials at whose end the newest owner could not write.
	Blocked int
	// First is the schedule of the first trial with a finding, "" if none.
	First string
}

// OK tells whether no rule was broken.
func (r Report) OK() bool { return r.Stale == 0 && r.Untrue == 0 && r.Blocked == 0 }

// String is one line for a log.
func (r Report) String() string {
	return fmt.Sprintf("%d trials: %d writes begun, %d accepted, %d refusals, %d crashes, %d failed steps; %d stale, %d untrue, %d blocked",
		r.Trials, r.Writes, r.Accepted, r.Refused, r.Crashed, r.Failed, r.Stale, r.Untrue, r.Blocked)
}

// Run holds the trials, each with a resource of its own that fresh makes: an
// own keyspace, table or prefix is enough, its servers may be shared. fresh is
// called by several goroutines if trials run in parallel. Errors of fresh and
// of Accepted end the test.
func Run(t testing.TB, opt Options, fresh func(trial int) (Resource, error)) Report {
	t.Helper()
	opt = opt.withDefaults()
	trials := make(chan int)
	var (
		mu    sync.Mutex
		total Report
		fatal error
		wg    sync.WaitGroup
	)
	for range opt.Parallel {
		wg.Go(func() {
			for n := range trials {
				r, err := run(t.Context(), opt, n, fresh)
				mu.Lock()
				total.add(r)
				if fatal == nil && err != nil {
					fatal = fmt.Errorf("trial %d (seed %d): %w", n, opt.Seed, err)
				}
				mu.Unlock()
			}
		})
	}
	for n := range opt.Trials {
		trials <- n
	}
	close(trials)
	wg.Wait()
	if fatal != nil {
		t.Fatal(fatal)
	}
	t.Logf("seed %d: %s", opt.Seed, total)
	return total
}

func (o Options) withDefaults() Options {
	or := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	or(&o.Trials, 1000)
	or(&o.Writers, 3)
	or(&o.Parallel, 1)
	if *flagTrials > 0 {
		o.Trials = *flagTrials
	}
	if o.Seed == 0 {
		o.Seed = 20260301
	}
	if *flagSeed > 0 {
		o.Seed = *flagSeed
	}
	if o.Blocked <= 0 {
		o.Blocked = 2 * time.Millisecond
	}
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	return o
}

func (r *Report) add(o Report) {
	r.Trials++
	r.Writes += o.Writes
	r.Accepted += o.Accepted
	r.Refused += o.Refused
	r.Crashed += o.Crashed
	r.Failed += o.Failed
	r.Stale += o.Stale
	r.Untrue += o.Untrue
	r.Blocked += o.Blocked
	if r.First == "" {
		r.First = o.First
	}
}

// run holds one trial.
func run(ctx context.Context, opt Options, n int, fresh func(int) (Resource, error)) (Report, error) {
	res, err := fresh(n)
	if err != nil {
		return Report{}, err
	}
	tr := &trial{
		opt: opt, res: res,
		rand:    rand.New(rand.NewPCG(opt.Seed, uint64(n))),
		results: map[fence.Stamp]*tally{},
		done:    make(chan *owner),
	}
	fmt.Fprintf(&tr.story, "trial %d, seed %d\n", n, opt.Seed)
	tr.cast(n)
	err = tr.play(ctx)
	if err == nil {
		err = tr.finish(ctx)
	}
	if err == nil {
		err = tr.judge(ctx)
	}
	if closer, ok := res.(interface{ Close() error }); ok {
		err = errors.Join(err, closer.Close())
	}
	if !tr.report.OK() {
		tr.report.First = tr.story.String()
	}
	return tr.report, err
}

// bases are where the tokens of a trial start: the traps of comparing them as
// text or as floats lie there.
var bases = []fence.Token{1, 9, 99, 999_999, 1<<31 - 1, 1 << 32, 99_999_999_999_999, 1<<53 - 20}

func (tr *trial) cast(n int) {
	token := bases[n%len(bases)]
	for i := range tr.opt.Writers {
		o := &owner{
			name:  string(rune('a' + i)),
			steps: make(chan func()),
			stamp: fence.Stamp{Keyspace: "trial", Partition: uint32(n % 3), Token: token, Owner: "w" + string(rune('a'+i))},
		}
		// Now and then a worker comes back under its old id.
		if i > 1 && tr.rand.IntN(4) == 0 {
			o.stamp.Owner = tr.owners[0].stamp.Owner
		}
		tr.owners = append(tr.owners, o)
		tr.results[o.stamp] = &tally{}
		token += 1 + fence.Token(tr.rand.IntN(3))
	}
}

type trial struct {
	opt     Options
	res     Resource
	rand    *rand.Rand
	owners  []*owner
	results map[fence.Stamp]*tally
	claims  []completed
	report  Report
	done    chan *owner

	mu    sync.Mutex // guards story: a step that was waited for in vain ends later
	story strings.Builder
}

// tally counts what the owner of a stamp was told.
type tally struct{ accepted, open int }

// completed is a claim that succeeded when the resource had accepted so much.
type completed struct {
	stamp fence.Stamp
	after int
}

func (tr *trial) say(o *owner, format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	fmt.Fprintf(&tr.story, "  %s token %d: %s\n", o.stamp.Owner, o.stamp.Token, fmt.Sprintf(format, args...))
}

// judge holds the rules against what the resource says it has accepted.
func (tr *trial) judge(ctx context.Context) error {
	accepted, err := tr.res.Accepted(ctx)
	if err != nil {
		return fmt.Errorf("read what was accepted: %w", err)
	}
	tr.report.Accepted = len(accepted)
	fmt.Fprintf(&tr.story, "accepted: %v\n", accepted)
	rows := map[fence.Stamp]int{}
	var highest fence.Token
	for i, s := range accepted {
		rows[s]++
		stale := s.Token < highest
		for _, c := range tr.claims {
			stale = stale || i >= c.after && s.Token < c.stamp.Token
		}
		if stale {
			tr.report.Stale++
			fmt.Fprintf(&tr.story, "STALE: write %d, %s\n", i, s)
		}
		highest = max(highest, s.Token)
	}
	for s, told := range tr.results {
		if n := rows[s]; n < told.accepted || n > told.accepted+told.open {
			tr.report.Untrue++
			fmt.Fprintf(&tr.story, "UNTRUE: %s was told of %d accepted and %d open, the resource has %d\n", s, told.accepted, told.open, n)
		}
	}
	return nil
}
