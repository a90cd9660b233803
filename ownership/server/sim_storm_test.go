package server

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// trouble is one kind of fault. begin makes it, and returns how to undo it if
// that is something to be done later.
type trouble struct {
	name   string
	weight int
	begin  func(s *sim, f fault) (undo func())
}

// fault is one line of a storm's plan; a and b choose whom it meets.
type fault struct {
	trouble
	at, lasts time.Duration
	a, b      int
}

func (f fault) String() string {
	return fmt.Sprintf("+%.3fs %s a=%d b=%d for %v", f.at.Seconds(), f.name, f.a, f.b, f.lasts)
}

// plan draws the faults of a storm of n within span. It depends on the
// generator only, never on what happens.
func plan(rng *rand.Rand, n int, pace simPace) []fault {
	span := time.Duration(n) * pace.every
	total := 0
	for _, t := range troubles {
		total += t.weight
	}
	faults := make([]fault, n)
	for i := range faults {
		pick := rng.IntN(total)
		for _, t := range troubles {
			if pick -= t.weight; pick < 0 {
				faults[i].trouble = t
				break
			}
		}
		faults[i].at = simDuration(rng, span).Truncate(time.Millisecond)
		// Most are short; some outlast the TTL.
		faults[i].lasts = pace.of((100*time.Millisecond + simDuration(rng, 3*time.Second) + time.Duration(rng.IntN(3)/2)*simDuration(rng, 8*time.Second)).Truncate(time.Millisecond))
		faults[i].a, faults[i].b = rng.IntN(60), rng.IntN(60)
	}
	slices.SortStableFunc(faults, func(x, y fault) int { return cmp.Compare(x.at, y.at) })
	return faults
}

func (s *sim) server(i int) *simServer { return s.servers[i%len(s.servers)] }

// another is a server that is not x.
func (s *sim) another(x *simServer, i int) *simServer {
	for {
		if o := s.server(i); o != x {
			return o
		}
		i++
	}
}

func (s *sim) process(i int) *simProcess { return s.workers[s.ids[i%len(s.ids)]] }

func (s *sim) leaderOr(i int) *simServer {
	if l := s.leader(); l != nil {
		return l
	}
	return s.server(i)
}

// cut blocks ways and says how to heal them.
func (s *sim) cut(ways ...[2]string) func() {
	for _, w := range ways {
		s.net.block(w[0], w[1], true)
	}
	return func() {
		for _, w := range ways {
			s.net.block(w[0], w[1], false)
		}
	}
}

func both(a, b string) [][2]string { return [][2]string{{a, b}, {b, a}} }

// others are the ways between one server and all the rest of the world.
func (s *sim) others(x *simServer) (ways [][2]string) {
	for _, ip := range s.net.ips() {
		if ip != x.ip() {
			ways = append(ways, both(x.ip(), ip)...)
		}
	}
	return ways
}

func (s *sim) toServers(p *simProcess, in, out bool) (ways [][2]string) {
	for _, x := range s.servers {
		if out {
			ways = append(ways, [2]string{p.host.ip, x.ip()})
		}
		if in {
			ways = append(ways, [2]string{x.ip(), p.host.ip})
		}
	}
	return ways
}

func (s *sim) revive(p *simProcess) func() {
	return func() {
		if s.workers[p.id] == p {
			s.spawn(p.id)
		}
	}
}

func (s *sim) killServer(x *simServer) func() {
	if x.running() == nil {
		return nil
	}
	if x == s.leader() {
		s.history.add(note{kind: noteKilled, what: x.id})
	}
	x.kill()
	return func() { s.helpers.Go(x.start) }
}

// troubles are all that can go wrong, as often as their weight says.
var troubles = []trouble{
	{"kill the leader", 4, func(s *sim, f fault) func() { return s.killServer(s.leaderOr(f.a)) }},
	{"kill a server", 2, func(s *sim, f fault) func() { return s.killServer(s.server(f.a)) }},
	{"restart a server in order", 2, func(s *sim, f fault) func() {
		x := s.server(f.a)
		s.helpers.Go(x.shutdown)
		return func() { s.helpers.Go(x.start) }
	}},
	{"hand the leadership on", 1, func(s *sim, f fault) func() {
		if l := s.leader(); l != nil {
			if srv := l.running(); srv != nil {
				s.operate(func(ctx context.Context) error { return srv.store.TransferLeadership(ctx) })
			}
		}
		return nil
	}},
	{"cut the leader off", 3, func(s *sim, f fault) func() { return s.cut(s.others(s.leaderOr(f.a))...) }},
	{"cut a server off", 2, func(s *sim, f fault) func() { return s.cut(s.others(s.server(f.a))...) }},
	{"cut two servers from each other", 3, func(s *sim, f fault) func() {
		x := s.server(f.a)
		return s.cut(both(x.ip(), s.another(x, f.b).ip())...)
	}},
	{"lose one way between servers", 3, func(s *sim, f fault) func() {
		x := s.leaderOr(f.a)
		way := [2]string{x.ip(), s.another(x, f.b).ip()}
		if f.b%2 == 0 {
			way[0], way[1] = way[1], way[0]
		}
		return s.cut(way)
	}},
	{"slow a server", 2, func(s *sim, f fault) func() {
		x, o := s.server(f.a), s.another(s.server(f.a), f.b)
		s.net.delay(x.ip(), o.ip(), 20*time.Millisecond+time.Duration(f.b)*5*time.Millisecond)
		return func() { s.net.delay(x.ip(), o.ip(), 0) }
	}},
	{"kill a worker", 3, func(s *sim, f fault) func() {
		p := s.process(f.a)
		p.kill()
		return s.revive(p)
	}},
	{"restart a worker at once", 2, func(s *sim, f fault) func() {
		p := s.process(f.a)
		p.kill()
		s.revive(p)()
		return nil
	}},
	{"stop a worker for a while", 5, func(s *sim, f fault) func() {
		p := s.process(f.a)
		p.pause()
		return p.resume
	}},
	{"a worker leaves", 3, func(s *sim, f fault) func() {
		p := s.process(f.a)
		p.leave()
		return s.revive(p)
	}},
	{"cut a worker off", 3, func(s *sim, f fault) func() {
		return s.cut(s.toServers(s.process(f.a), true, true)...)
	}},
	{"a worker is not heard", 2, func(s *sim, f fault) func() {
		return s.cut(s.toServers(s.process(f.a), false, true)...)
	}},
	{"a worker hears nothing", 2, func(s *sim, f fault) func() {
		return s.cut(s.toServers(s.process(f.a), true, false)...)
	}},
	{"cut a worker from the leader", 2, func(s *sim, f fault) func() {
		return s.cut(both(s.process(f.a).host.ip, s.leaderOr(f.b).ip())...)
	}},
	{"break a worker's connections", 2, func(s *sim, f fault) func() {
		for _, x := range s.servers {
			s.net.reset(s.process(f.a).host.ip, x.ip())
		}
		return nil
	}},
	{"drain a worker", 2, func(s *sim, f fault) func() {
		id := s.process(f.a).id
		s.operate(func(ctx context.Context) error {
			_, err := s.operator().Workers().DrainWorker(ctx, &leaseholdv1.DrainWorkerRequest{Id: id})
			return err
		})
		return func() { s.undrain(id) }
	}},
	{"evict a worker", 1, func(s *sim, f fault) func() {
		p := s.process(f.a)
		s.operate(func(ctx context.Context) error {
			_, err := s.operator().Workers().EvictWorker(ctx, &leaseholdv1.EvictWorkerRequest{Id: p.id})
			return err
		})
		return nil
	}},
	{"move a partition", 4, func(s *sim, f fault) func() {
		k := simKeyspaces[f.a%len(simKeyspaces)]
		to := s.process(f.b).id
		s.operate(func(ctx context.Context) error {
			_, err := s.operator().Partitions().MovePartition(ctx, &leaseholdv1.MovePartitionRequest{
				Keyspace: k.name, Partition: uint32(f.b) % k.partitions, To: to,
			})
			return err
		})
		return nil
	}},
	{simLoseDisk, 3, func(s *sim, f fault) func() { return s.loseDisk(s.server(f.a)) }},
	{"a server comes back elsewhere", 2, func(s *sim, f fault) func() {
		x := s.server(f.a)
		if !s.pace.gossip {
			x = s.servers[0] // workers without gossip know the addresses of the others
		}
		return s.elsewhere(f.b%2 == 0, x)
	}},
	{simAllMove, 1, func(s *sim, f fault) func() {
		if !s.pace.gossip {
			return s.spare(simAllMove, "without gossip workers would not find them")
		}
		return s.elsewhere(f.b%2 == 0, s.servers...)
	}},
	{"a disk hangs for a while", 3, func(s *sim, f fault) func() {
		x := s.server(f.a)
		if f.b%2 == 0 {
			x = s.leaderOr(f.a)
		}
		return x.disk.hang(f.lasts)
	}},
	{"a disk is slow", 2, func(s *sim, f fault) func() {
		return s.server(f.a).disk.slow(s.pace.of(5*time.Millisecond + time.Duration(f.b)*3*time.Millisecond))
	}},
}

func (s *sim) undrain(id string) {
	s.operate(func(ctx context.Context) error {
		_, err := s.operator().Workers().UndrainWorker(ctx, &leaseholdv1.UndrainWorkerRequest{Id: id})
		return err
	})
}

// operate is one command of an operator, who may be told no.
func (s *sim) operate(call func(context.Context) error) {
	s.helpers.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.pace.of(5*time.Second))
		defer cancel()
		if err := call(ctx); err != nil {
			s.refused.Add(1)
		} else {
			s.accepted.Add(1)
		}
	})
}

// storm carries a plan out, and undoes everything at its end.
func (s *sim) storm(faults []fault) {
	type later struct {
		at   time.Duration
		undo func()
	}
	var undo []later
	began := s.history.now()
	until := func(at time.Duration) {
		for s.history.now()-began < at {
			step := min(at-(s.history.now()-began), s.pace.of(50*time.Millisecond))
			time.Sleep(step)
			s.noteSessions()
			s.replaceEvicted()
			for i := 0; i < len(undo); {
				if s.history.now()-began < undo[i].at {
					i++
					continue
				}
				u := undo[i]
				undo = slices.Delete(undo, i, i+1)
				u.undo()
			}
		}
	}
	for _, f := range faults {
		until(f.at)
		s.faults[f.name]++
		s.history.add(note{kind: noteFault, what: f.String()})
		if u := f.begin(s, f); u != nil {
			undo = append(undo, later{f.at + f.lasts, u})
		}
	}
	until(faults[len(faults)-1].at + s.pace.of(time.Second))
	for _, u := range undo {
		u.undo()
	}
}

// simDuration draws from [0, below).
func simDuration(rng *rand.Rand, below time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(below)))
}
