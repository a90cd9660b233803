package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Fault is one kind of trouble.
type Fault string

// What is done to servers.
const (
	KillLeader     Fault = "kill-leader"     // kill -9, started again after a while, as all below
	KillFollower   Fault = "kill-follower"   //
	KillTwo        Fault = "kill-two"        // no quorum meanwhile
	KillServers    Fault = "kill-servers"    // all at once
	StopLeader     Fault = "stop-leader"     // SIGSTOP, later SIGCONT
	StopFollower   Fault = "stop-follower"   //
	RollServers    Fault = "roll-servers"    // SIGTERM and start, one by one
	TransferLeader Fault = "transfer-leader" // by the operator's verb
	WipeServer     Fault = "wipe-server"     // comes back under its id with an empty data directory
	SwapServer     Fault = "swap-server"     // removed for good, another one added
	CutLeader      Fault = "cut-leader"      // no packet from or to any other process but the driver
	CutFollower    Fault = "cut-follower"    //
	CutInTwo       Fault = "cut-in-two"      // one server with some workers, two with the others
	CutOneWay      Fault = "cut-one-way"     // a server sends and hears nothing, or the reverse
	SlowDisk       Fault = "slow-disk"       // each write of the log takes longer
	HangingDisk    Fault = "hanging-disk"    // no write returns for longer than a leader may bear
	ServerClocks   Fault = "server-clocks"   // up to 0.9 % too fast or too slow
)

// What is done to workers.
const (
	StopWorker      Fault = "stop-worker"        // SIGSTOP before a write, until after its TTL
	PauseWorker     Fault = "pause-worker"       // SIGSTOP for less than that
	KillWorker      Fault = "kill-worker"        // kill -9, started again under its id
	KillTwoWorkers  Fault = "kill-two-workers"   //
	RestartWorker   Fault = "restart-worker"     // SIGTERM and start
	RollWorkers     Fault = "roll-workers"       // all of them, one by one
	LeaveWorker     Fault = "leave-worker"       // leaves cleanly, joins again later
	DrainWorker     Fault = "drain-worker"       // by the operator's verb, undrained later
	CutWorker       Fault = "cut-worker"         // from all servers and workers; the ledger it reaches
	CutWorkerOneWay Fault = "cut-worker-one-way" //
	WorkerClocks    Fault = "worker-clocks"      // up to 0.9 % too fast or too slow
)

var (
	serverFaults = []Fault{KillLeader, KillFollower, KillTwo, KillServers, StopLeader, StopFollower, RollServers, TransferLeader,
		WipeServer, SwapServer, CutLeader, CutFollower, CutInTwo, CutOneWay, SlowDisk, HangingDisk, ServerClocks}
	workerFaults = []Fault{StopWorker, PauseWorker, KillWorker, KillTwoWorkers, RestartWorker, RollWorkers, LeaveWorker, DrainWorker,
		CutWorker, CutWorkerOneWay, WorkerClocks}
	// cuts need a network that can be cut.
	cuts = []Fault{CutLeader, CutFollower, CutInTwo, CutOneWay, CutWorker, CutWorkerOneWay}
	// singular faults leave no quorum, or only just, or change who may have a
	// say: nothing else is done meanwhile.
	singular = []Fault{KillTwo, KillServers, WipeServer, SwapServer, RollServers, RollWorkers}
)

// Step is one fault, or two at once, with everything that chance decides.
type Step struct {
	Fault Fault
	With  Fault         // at the same time; empty: nothing
	Pick  uint64        // which of those it can hit, and how
	Hold  time.Duration // until it is healed
	Calm  time.Duration // ordinary work before it
}

func (s Step) String() string {
	with := ""
	if s.With != "" {
		with = fmt.Sprintf(" and %s", s.With)
	}
	return fmt.Sprintf("%s%s, for %v", s.Fault, with, s.Hold.Round(time.Millisecond))
}

// Plan makes n steps. It is pure: a seed always gives the same ones, and a
// longer plan begins like a shorter one. It begins with a worker stopped past
// its TTL, the death of one and the death of the leader, so that even a short
// run has takeovers and a write to refuse. Then every kind comes once in each
// round, in an order of its own.
func Plan(seed int64, n int, without ...Fault) []Step {
	rng := rand.New(rand.NewPCG(uint64(seed), 0xc4a05))
	kinds := slices.DeleteFunc(slices.Concat(serverFaults, workerFaults), func(f Fault) bool { return slices.Contains(without, f) })
	round := []Fault{StopWorker, KillWorker, KillLeader}
	var steps []Step
	for len(steps) < n {
		rng.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
		for _, f := range round {
			steps = append(steps, step(rng, f, kinds))
		}
		round = slices.Clone(kinds)
	}
	return steps[:n]
}

// step draws the rest of a fault.
func step(rng *rand.Rand, f Fault, kinds []Fault) Step {
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	s := Step{Fault: f, Pick: rng.Uint64(), Calm: between(200*time.Millisecond, time.Second), Hold: between(500*time.Millisecond, 4*time.Second)}
	switch f {
	case HangingDisk: // longer than a leader may bear it, shorter than a process may
		s.Hold = between(2500*time.Millisecond, 5*time.Second)
	case KillLeader, KillFollower, KillWorker, KillTwoWorkers, LeaveWorker:
		s.Hold = between(0, 3*time.Second)
	case StopWorker: // after the TTL
		s.Hold = between(500*time.Millisecond, 1500*time.Millisecond)
	case PauseWorker:
		s.Hold = between(300*time.Millisecond, 2500*time.Millisecond)
	case CutWorker, CutWorkerOneWay, CutLeader, CutInTwo:
		s.Hold = between(time.Second, 6*time.Second)
	case ServerClocks, WorkerClocks: // a TTL, for the error to add up
		s.Hold = between(3*time.Second, 5*time.Second)
	}
	// One in ten comes with a second one from the other side, and always one
	// that shows only while something else happens.
	others := workerFaults
	if slices.Contains(workerFaults, f) {
		others = serverFaults
	}
	other := others[rng.IntN(len(others))]
	pair := rng.IntN(10) == 0 || slices.Contains([]Fault{ServerClocks, WorkerClocks, SlowDisk}, f)
	if pair && compatible(f, other) && slices.Contains(kinds, other) {
		s.With = other
	}
	return s
}

// compatible says whether two faults may be made at once. Two cuts would heal
// each other, and the clocks of both sides may be more than 1 % apart, for
// which nothing is promised.
func compatible(a, b Fault) bool {
	both := func(set []Fault) bool { return slices.Contains(set, a) && slices.Contains(set, b) }
	return !slices.Contains(singular, a) && !slices.Contains(singular, b) && !both(cuts) && !both([]Fault{ServerClocks, WorkerClocks})
}
