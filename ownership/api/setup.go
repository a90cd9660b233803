package api

import (
	"context"
	"net"

	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// Workers that gossip are told label, keys and servers over their session: a worker
// needs no key of its own, and one that was away while the keys changed is back as
// soon as it has a session.

// confidential tells whether keys may go to a caller: nobody between the two can
// read them, or the server was told with --insecure that this does not matter.
func (a *API) confidential(ctx context.Context) bool {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	if _, encrypted := p.AuthInfo.(grpccredentials.TLSInfo); encrypted || a.cfg.Insecure {
		return true
	}
	// A forwarded call has come over two connections.
	return p.Addr != nil && isLoopback(p.Addr.String()) && isLoopback(callerAddr(ctx))
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// tellKeysLocked makes every stream tell its worker the keys anew.
func (h *hub) tellKeysLocked() {
	for _, st := range h.streams {
		st.tellKeys()
	}
}

func (st *stream) tellKeys() {
	st.mu.Lock()
	st.setupDue = true
	st.mu.Unlock()
	st.signal()
}

// sendSetup tells a worker that gossips what it needs for that. Without keys where
// there are some, it could only send what nobody takes: then it is told nothing.
func (st *stream) sendSetup(send func(*pb.AttachResponse) error) error {
	m, encrypted := st.hub.setup()
	if m == nil || encrypted && !st.confidential {
		return nil
	}
	return send(&pb.AttachResponse{Response: &pb.AttachResponse_Gossip{Gossip: m}})
}

// setup is what members need to take part in gossip; nil: there is none.
func (h *hub) setup() (m *pb.GossipSetup, encrypted bool) {
	if h.gossip == nil {
		return nil, false
	}
	var now state.Keyring
	announced := map[string]string{}
	h.store.View(func(s *state.State) {
		now = s.Keyring()
		for _, srv := range s.Servers() {
			announced[srv.ID] = srv.GossipAddr
		}
	})
	if now.Version == 0 { // not in the log yet
		now.Version, now.Keys = h.gossip.Keys()
	}
	m = &pb.GossipSetup{Label: h.label, Keys: now.Keys, Version: now.Version}
	for _, p := range h.store.Status().Peers {
		addr := announced[p.ID]
		if g, ok := h.gossip.Member(gossip.Name(gossip.RoleServer, p.ID)); ok {
			addr = g.Addr
		}
		if addr != "" {
			m.Seeds = append(m.Seeds, addr)
		}
	}
	return m, len(now.Keys) > 0
}
