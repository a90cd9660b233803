package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// notDone is the error of a fault that was not made, and why: a verb was
// refused.
type notDone struct{ err error }

func (n *notDone) Error() string { return n.err.Error() }

// do makes a fault, and returns what heals it.
func (r *runner) do(ctx context.Context, f Fault, pick uint64) (heal func(context.Context) error, err error) {
	leader, err := r.Cluster.Leader(ctx)
	if err != nil {
		return nil, err
	}
	all := r.Cluster.Servers()
	followers := slices.DeleteFunc(slices.Clone(all), func(s *cluster.Server) bool { return s == leader })
	follower := followers[pick%uint64(len(followers))]
	one := all[pick%uint64(len(all))]
	switch f {
	case KillLeader:
		return r.killServers(leader)
	case KillFollower:
		return r.killServers(follower)
	case KillTwo:
		return r.killServers(leader, follower)
	case KillServers:
		return r.killServers(all...)
	case StopLeader:
		return r.stopServer(ctx, leader)
	case StopFollower:
		return r.stopServer(ctx, follower)
	case RollServers:
		return nothing, r.rollServers(ctx, pick)
	case TransferLeader:
		_, err := r.Client.Cluster().TransferLeadership(ctx, &leaseholdv1.TransferLeadershipRequest{ServerId: follower.ID})
		if err != nil { // a follower that is behind cannot take over
			return nil, &notDone{err}
		}
		return nothing, nil
	case WipeServer:
		return nothing, r.wipeServer(ctx, one)
	case SwapServer:
		return nothing, r.swapServer(ctx, one)
	case CutLeader:
		return r.cutOff(leader.ID)
	case CutFollower:
		return r.cutOff(follower.ID)
	case CutInTwo:
		return r.cutInTwo(one, pick)
	case CutOneWay:
		return r.cutOneWay(one.ID, pick)
	case SlowDisk:
		return r.slowDisks(all, pick)
	case HangingDisk:
		return r.hangDisk(one)
	case ServerClocks:
		return r.serverClocks(serverIDs(all), pick)
	}
	return r.doWorker(ctx, f, pick)
}

func nothing(context.Context) error { return nil }

func serverIDs(all []*cluster.Server) (ids []string) {
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids
}

// killServers ends servers at once.
func (r *runner) killServers(victims ...*cluster.Server) (func(context.Context) error, error) {
	r.story.Note("kill -9 of %v", serverIDs(victims))
	for _, s := range victims {
		if err := s.Process().Signal(syscall.SIGKILL); err != nil {
			return nil, err
		}
	}
	for _, s := range victims {
		<-s.Process().Done()
	}
	return func(context.Context) error {
		var errs []error
		for _, s := range victims {
			errs = append(errs, r.Cluster.Start(s))
		}
		return errors.Join(errs...)
	}, nil
}

func (r *runner) stopServer(ctx context.Context, s *cluster.Server) (func(context.Context) error, error) {
	r.story.Note("SIGSTOP of %s", s.ID)
	if err := s.Process().Stop(ctx); err != nil {
		return nil, err
	}
	return func(context.Context) error { return s.Process().Continue() }, nil
}

// rollServers restarts all servers, each when the one before is ready.
func (r *runner) rollServers(ctx context.Context, pick uint64) error {
	all := slices.Clone(r.Cluster.Servers())
	for i := range all {
		s := all[(uint64(i)+pick)%uint64(len(all))]
		if err := r.Cluster.Terminate(ctx, s); err != nil {
			return fmt.Errorf("terminate %s: %w", s.ID, err)
		}
		if err := r.Cluster.Restart(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// wipeServer has a server come back with nothing, and waits until it votes.
func (r *runner) wipeServer(ctx context.Context, s *cluster.Server) error {
	r.story.Note("%s loses its data directory", s.ID)
	if err := r.Cluster.Kill(s); err != nil {
		return err
	}
	if err := r.Cluster.Wipe(s); err != nil {
		return err
	}
	if err := r.Cluster.Start(s); err != nil {
		return err
	}
	return r.Cluster.AwaitVoters(ctx)
}

// swapServer takes a server out for good and puts another one in its place.
func (r *runner) swapServer(ctx context.Context, old *cluster.Server) error {
	spec, err := r.newServer()
	if err != nil {
		return err
	}
	r.story.Note("%s is replaced by %s", old.ID, spec.ID)
	if err := r.Cluster.Swap(ctx, r.Client, old, spec); err != nil {
		return err
	}
	if err := r.Redial(ctx); err != nil { // unlike workers, the driver does not look for servers
		return err
	}
	return r.Cluster.AwaitVoters(ctx)
}

// cutOff lets nothing through between a host and all others but the driver.
func (r *runner) cutOff(host string) (func(context.Context) error, error) {
	r.story.Note("%s is cut off", host)
	return r.healed(r.cfg.Network.Cut([]string{host}, r.cfg.Network.Hosts()))
}

// cutInTwo puts one server and some workers on one side, and the rest on the
// other.
func (r *runner) cutInTwo(s *cluster.Server, pick uint64) (func(context.Context) error, error) {
	var a, b []string
	for _, h := range slices.Sorted(slices.Values(r.cfg.Network.Hosts())) {
		pick = pick>>1 | pick<<63
		switch {
		case h == s.ID || h[0] == 'w' && pick&1 == 0:
			a = append(a, h)
		default:
			b = append(b, h)
		}
	}
	r.story.Note("%v are cut off from %v", a, b)
	return r.healed(r.cfg.Network.Cut(a, b))
}

// cutOneWay makes a host deaf or dumb.
func (r *runner) cutOneWay(host string, pick uint64) (func(context.Context) error, error) {
	n := r.cfg.Network
	if pick>>32&1 == 0 {
		r.story.Note("%s hears nothing", host)
		return r.healed(n.Drop(host, n.Hosts()...))
	}
	r.story.Note("%s is not heard", host)
	var errs []error
	for _, h := range n.Hosts() {
		errs = append(errs, n.Drop(h, host))
	}
	return r.healed(errors.Join(errs...))
}

func (r *runner) healed(err error) (func(context.Context) error, error) {
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return r.cfg.Network.Heal() }, nil
}

// slowDisks delays each write, on one server or on all.
func (r *runner) slowDisks(all []*cluster.Server, pick uint64) (func(context.Context) error, error) {
	delay := 20*time.Millisecond + time.Duration(pick>>32%180)*time.Millisecond
	ids := serverIDs(all)
	if pick>>8&1 == 0 {
		i := pick % uint64(len(ids))
		ids = ids[i : i+1]
	}
	r.story.Note("each write of %v takes %v longer", ids, delay)
	return r.inside(ids, func(string) inner { return inner{DiskDelay: delay} })
}

func (r *runner) hangDisk(s *cluster.Server) (func(context.Context) error, error) {
	r.story.Note("the disk of %s hangs", s.ID)
	return r.inside([]string{s.ID}, func(string) inner { return inner{DiskHangs: true} })
}
