package raftstore

import (
	"fmt"
	"strings"

	"github.com/hashicorp/raft"
)

// Peer is a server of the Raft group.
type Peer struct {
	// ID is the server's name, which its operator chose.
	ID string
	// Store is the random id of its data directory. A server whose directory was
	// emptied comes back under its old ID with another Store: to Raft it is a
	// stranger, with no vote and nothing to answer for.
	Store string
	// RaftAddr is where the others reach it. It may change at any time.
	RaftAddr string
}

// String names the server, and its data directory in case there are two.
func (p Peer) String() string {
	if p.Store == "" {
		return p.ID
	}
	return p.ID + "#" + p.Store
}

// raftID is the server's id inside Raft, id#store.
func (p Peer) raftID() raft.ServerID { return raft.ServerID(p.ID + "#" + p.Store) }

// raftAddress is the server's address inside Raft, id#store@host:port. It says
// who is meant, so that the hello of each connection can ask for exactly that
// server; and a server that comes back with an empty directory at its old
// address is no duplicate in the configuration.
func (p Peer) raftAddress() raft.ServerAddress {
	return raft.ServerAddress(p.ID + "#" + p.Store + "@" + p.RaftAddr)
}

// splitID is the inverse of raftID, but for the address.
func splitID(id raft.ServerID) Peer {
	if at := strings.LastIndexByte(string(id), '#'); at >= 0 {
		return Peer{ID: string(id[:at]), Store: string(id[at+1:])}
	}
	return Peer{ID: string(id)}
}

// splitAddress is the inverse of raftAddress. Neither a host nor a store
// contains an @.
func splitAddress(a raft.ServerAddress) Peer {
	if at := strings.LastIndexByte(string(a), '@'); at >= 0 {
		p := splitID(raft.ServerID(a[:at]))
		p.RaftAddr = string(a[at+1:])
		return p
	}
	return Peer{RaftAddr: string(a)}
}

// peerOf reads a server of Raft's configuration.
func peerOf(srv raft.Server) Peer {
	p := splitID(srv.ID)
	p.RaftAddr = splitAddress(srv.Address).RaftAddr
	return p
}

// PeerError refuses a change of the group's servers. Nothing was changed.
type PeerError struct {
	Op     string // "add", "promote", "remove", "move", "transfer to", "bootstrap"
	Peer   Peer
	Reason string // what is in the way, and what to do about it
}

// Error reads "op server: reason".
func (e *PeerError) Error() string { return fmt.Sprintf("%s server %s: %s", e.Op, e.Peer, e.Reason) }
