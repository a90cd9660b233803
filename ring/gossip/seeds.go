package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkSeed says what is wrong with the address of a seed.
func checkSeed(seed string) error {
	const example = "10.0.0.1:7402 or [::1]:7402"
	host, port, err := net.SplitHostPort(strings.TrimSpace(seed))
	if err != nil || host == "" {
		return fmt.Errorf("seed %q is not host:port, for example %s", seed, example)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("seed %q is not host:port with a port of 1 to 65535, for example %s", seed, example)
	}
	if err := checkZone(host); err != nil {
		return fmt.Errorf("seed %q: %w", seed, err)
	}
	return nil
}

// checkZone refuses addresses like fe80::1%eth0: a zone means something on one
// machine only, and gossip tells addresses to others.
func checkZone(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Zone() != "" {
		return fmt.Errorf("an address with a zone (%%%s) means nothing to other machines; use a global or unique local one, for example fd00::1", ip.Zone())
	}
	return nil
}

// SetSeeds replaces the addresses of Config.Seeds while Run works. Members that
// are known stay known; the new addresses are tried within a second. A list
// with a fault changes nothing.
func (g *Gossip) SetSeeds(seeds []string) error {
	fresh := make([]string, 0, len(seeds))
	for _, s := range seeds {
		if err := checkSeed(s); err != nil {
			return fmt.Errorf("set gossip seeds: %w", err)
		}
		fresh = append(fresh, strings.TrimSpace(s))
	}
	for {
		select {
		case g.seeker.reseeds <- fresh:
			return nil
		case <-g.seeker.reseeds: // an older list that nobody has taken yet
		}
	}
}

// reseed takes a new list. What is being looked up still belongs to the old.
func (s *seeker) reseed(seeds []string) {
	if slices.Equal(seeds, s.seeds) {
		return
	}
	s.seeds, s.lookAt = seeds, time.Time{}
	s.outdated = s.looking
	for _, t := range s.targets {
		t.seed = false // remember drops those that nobody has claimed
	}
}

// lookUpSeeds turns the seeds into addresses, in the background: a name server
// may be slow.
func (s *seeker) lookUpSeeds(ctx context.Context, up map[string]bool, now time.Time) {
	if s.looking || now.Before(s.lookAt) || len(s.seeds) == 0 || s.allSeedsUp(up) && !s.nameless {
		return
	}
	s.lookAt = now.Add(jitter(lookupEvery))
	seeds := s.seeds // the list may be replaced meanwhile
	s.looking = s.g.spawn(func() {
		found := s.resolve(ctx, seeds)
		select {
		case s.found <- found:
		case <-ctx.Done():
		}
	})
}

func (s *seeker) allSeedsUp(up map[string]bool) bool {
	n := 0
	for addr, t := range s.targets {
		if t.seed {
			if !up[addr] {
				return false
			}
			n++
		}
	}
	return n > 0
}

// lookedUp is what the names of the seeds stand for.
type lookedUp struct {
	addrs []string
	some  bool // not all could be looked up
}

func (s *seeker) resolve(ctx context.Context, seeds []string) (l lookedUp) {
	for _, seed := range seeds {
		host, port, err := net.SplitHostPort(seed)
		if err != nil {
			continue // New has checked it
		}
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		ips, err := s.g.lookup(ctx, host)
		cancel()
		if err != nil {
			l.some = true
			s.g.log.Warn("gossip seed cannot be looked up", "seed", seed, "error", err)
			continue
		}
		for _, ip := range ips {
			l.addrs = append(l.addrs, net.JoinHostPort(ip.String(), port))
		}
	}
	return l
}

// setSeeds replaces the addresses of the seeds. Where a name could not be
// looked up, the old ones are kept.
func (s *seeker) setSeeds(l lookedUp) {
	s.looking = false
	if s.outdated {
		s.outdated = false
		return
	}
	s.nameless = l.some
	for addr, t := range s.targets {
		if l.some {
			break
		}
		t.seed = slices.Contains(l.addrs, addr)
		if !t.seed && t.name == "" && !t.trying {
			delete(s.targets, addr)
		}
	}
	for _, addr := range l.addrs {
		if s.targets[addr] == nil && addr != s.g.local {
			s.targets[addr] = &target{seed: true}
		}
	}
}
