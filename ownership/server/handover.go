package server

import (
	"context"
	"errors"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
)

func (s *Server) handOverLeadership(ctx context.Context) {
	if !s.store.IsLeader() || s.aloneInGroup() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 4*s.cfg.ElectionTimeout)
	defer cancel()
	if err := s.store.TransferLeadership(ctx); err != nil && !errors.Is(err, context.Canceled) {
		s.log.Warn("leadership was not handed over", "error", err)
	}
}

// aloneInGroup reports whether there is nobody whom leadership could be handed to.
func (s *Server) aloneInGroup() bool {
	voters := 0
	for _, p := range s.store.Status().Peers {
		if p.Voter {
			voters++
		}
	}
	return voters == 1
}

// leadCertified hands the leadership on when this server's certificate has run out:
// nobody can connect to it any more, and so no session could be renewed, but Raft's
// connections, which are open, would keep it the leader. Each of the others is given
// it once for a certificate: where all have run out it comes to rest.
func (s *Server) leadCertified(ctx context.Context) error {
	if s.certificates == nil {
		return nil
	}
	tick := time.NewTicker(watchInterval * time.Duration(max(s.cfg.hooks.pace, 1)))
	defer tick.Stop()
	for {
		if own := s.certificates.Certificates()[0]; time.Now().After(own.NotAfter) {
			if s.given.serial != own.Serial {
				s.given = given{serial: own.Serial, to: map[string]bool{}}
			}
			if to, ok := s.given.next(s.store.Status().Peers, s.store.Self()); ok {
				s.log.Error("the certificate of the leader has run out, nobody can connect to it: the leadership is handed on",
					"file", own.File, "expires", own.NotAfter.UTC(), "to", to.ID)
				if err := s.store.TransferLeadership(ctx, to); err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
					s.log.Warn("leadership was not handed over", "to", to.ID, "error", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// given are those to whom the leadership was handed on, for the sake of one
// certificate. It belongs to leadCertified.
type given struct {
	serial string
	to     map[string]bool
}

// next is the voter who answers, has not been given it yet and is furthest on.
func (g *given) next(peers []raftstore.PeerStatus, self raftstore.Peer) (to raftstore.Peer, ok bool) {
	var best raftstore.PeerStatus
	for _, p := range peers {
		if p.Voter && p.ID != self.ID && p.LastContact >= 0 && !g.to[p.ID] && (!ok || p.LastIndex > best.LastIndex) {
			best, ok = p, true
		}
	}
	if ok {
		g.to[best.ID] = true
	}
	return best.Peer, ok
}
