package server

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore"
)

// TwinError ends a server whose id belongs to another one that runs.
type TwinError struct {
	ID          string
	Addr, Other string // gRPC addresses of this server and of the other
}

// Error names the id, both addresses, and what to do.
func (e *TwinError) Error() string {
	return fmt.Sprintf("server id %q is taken: a server of that id runs at %s, this one is at %s; give this one another --id, or stop the other one first", e.ID, e.Other, e.Addr)
}

// twinDeadline bounds the question to a server of the same id. A process that
// is gone refuses at once.
const twinDeadline = 2 * time.Second

// noteTwin is told of addresses that are said to be this server's. It does not
// block; the same ones come again while they last.
func (s *Server) noteTwin(grpcAddr string) {
	select {
	case s.twins <- grpcAddr:
	default:
	}
}

// meetTwin looks who else is said to have this server's id. Mostly it is this
// server's own past, at the address that it had before; then nobody answers
// there. If somebody does, the one that does not belong to the cluster ends.
func (s *Server) meetTwin(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, twinDeadline)
	defer cancel()
	st, err := s.ask(ctx, addr)
	if err != nil || st.GetServerId() != s.id || st.GetBoot() == s.vitals.boot {
		return nil
	}
	if s.yields(st) {
		s.mu.Lock()
		s.isTwin = true
		s.mu.Unlock()
		return &TwinError{ID: s.id, Addr: s.addrs.GRPC, Other: addr}
	}
	if s.warnedOf != addr {
		s.warnedOf = addr
		s.log.Warn("another server claims the id of this one; it is told to end", "server", s.id, "addr", s.addrs.GRPC, "other", addr)
	}
	return nil
}

// yields tells whether this server ends in favour of the other of its id. Both
// ask each other, and both come to the same result.
func (s *Server) yields(other *leaseholdv1.Status) bool {
	mine := s.rank(s.store.Self().Store, s.store.HasState())
	theirs := s.rank(other.GetStoreId(), other.GetHasState())
	if mine != theirs {
		return mine < theirs
	}
	return s.vitals.boot > other.GetBoot() // who came later
}

// rank orders two servers of one id: a voter, a non-voter, one with data that
// is not in the group (any more), an empty one.
func (s *Server) rank(store string, hasState bool) int {
	for _, p := range s.store.Status().Peers {
		if keyOf(p.Peer) == keyOf(raftstore.Peer{ID: s.id, Store: store}) {
			if p.Voter {
				return 3
			}
			return 2
		}
	}
	if hasState {
		return 1
	}
	return 0
}

// leaveGossip goes without a goodbye when the name belongs to another process:
// the others would take it for that one's.
func (s *Server) leaveGossip(ctx context.Context) {
	s.mu.Lock()
	twin := s.isTwin
	s.mu.Unlock()
	if twin {
		_ = s.gossip.Shutdown(ctx)
	}
}
