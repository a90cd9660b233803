package demo

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Action is one kind of trouble.
type Action string

// What the driver does, in this order. The leader dies while the partitions
// are evenly spread, so that every move after its death is its fault.
const (
	ActionJoin       Action = "join"        // one more worker
	ActionLeave      Action = "leave"       // a worker leaves cleanly
	ActionKillLeader Action = "kill-leader" // kill -9 of the Raft leader, later started again
	ActionCrash      Action = "crash"       // kill -9 of a worker
	ActionZombie     Action = "zombie"      // SIGSTOP of a worker past its TTL, then SIGCONT
	ActionRolling    Action = "rolling"     // all workers restart with their ids, one by one
)

// Step is one action with everything that chance decides about it.
type Step struct {
	Action  Action
	Worker  string        // whom it hits; of ActionJoin: the newcomer
	Workers []string      // of ActionRolling: in this order
	Pick    uint64        // of ActionZombie: which of the held partitions gets the gate
	Calm    time.Duration // ordinary work before it
}

// Storm plans the steps. It is pure: a seed always gives the same storm.
// workers is how many run at the start, at least MinWorkers.
func Storm(seed int64, workers int) []Step {
	rng := rand.New(rand.NewPCG(uint64(seed), 0x1ea5e401d))
	alive := workerIDs(workers)
	calm := func() time.Duration {
		return 200*time.Millisecond + time.Duration(rng.Int64N(int64(300*time.Millisecond)))
	}
	victim := func() string { return alive[rng.IntN(len(alive))] }
	gone := func(id string) { alive = slices.DeleteFunc(alive, func(w string) bool { return w == id }) }

	steps := []Step{{Action: ActionJoin, Worker: workerID(workers + 1), Calm: calm()}}
	alive = append(alive, workerID(workers+1))

	leaver := victim()
	steps = append(steps, Step{Action: ActionLeave, Worker: leaver, Calm: calm()})
	gone(leaver)

	steps = append(steps, Step{Action: ActionKillLeader, Calm: calm()})

	crashed := victim()
	steps = append(steps, Step{Action: ActionCrash, Worker: crashed, Calm: calm()})
	gone(crashed)

	steps = append(steps, Step{Action: ActionZombie, Worker: victim(), Pick: rng.Uint64(), Calm: calm()})

	order := slices.Clone(alive)
	rng.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	return append(steps, Step{Action: ActionRolling, Workers: order, Calm: calm()})
}

// MinWorkers leaves someone to take over at every step: of four after the
// join, one leaves, one crashes and one is stopped.
const MinWorkers = 3

func workerID(n int) string { return fmt.Sprintf("w%d", n) }

func workerIDs(n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, workerID(i+1))
	}
	return ids
}
