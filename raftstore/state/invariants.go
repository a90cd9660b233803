package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Check verifies every invariant and returns the first that is broken. It
// costs O(partitions log partitions), for tests and for Restore.
func (s *State) Check() error {
	for _, check := range []func() error{
		s.checkTokens, s.checkServers, s.checkWorkers, s.checkSessions,
		s.checkKeyspaces, s.checkNames, s.checkLedger, s.checkKeys, s.checkAccess,
	} {
		if err := check(); err != nil {
			return fmt.Errorf("broken invariant: %w", err)
		}
	}
	return nil
}

// checkTokens: no two leases or keys ever had the same token, none is above the
// counter, and the counter is below its limit.
func (s *State) checkTokens() error {
	if s.lastToken > MaxToken || s.clock < 0 {
		return fmt.Errorf("token counter is %d, clock %s", s.lastToken, s.clock)
	}
	var all []Token
	for _, k := range s.keyspaceOrder {
		for p, t := range k.token {
			if t > s.lastToken {
				return fmt.Errorf("%s/%d has token %d above the counter %d", k.Name, p, t, s.lastToken)
			}
			if t == 0 && k.holder[p] != 0 {
				return fmt.Errorf("%s/%d has an owner and no token", k.Name, p)
			}
			if t != 0 {
				all = append(all, t)
			}
		}
	}
	for kv := range s.keys.Keys() {
		if t := Token(kv.Token); t > s.lastToken {
			return fmt.Errorf("key %.64q has token %d above the counter %d", kv.Key, t, s.lastToken)
		} else if t != 0 {
			all = append(all, t)
		}
	}
	slices.Sort(all)
	for i := 1; i < len(all); i++ {
		if all[i] == all[i-1] {
			return fmt.Errorf("token %d was granted twice", all[i])
		}
	}
	return nil
}

func (s *State) checkServers() error {
	if s.clusterID != "" {
		if err := ValidateName("cluster", "cluster_id", s.clusterID); err != nil {
			return err
		}
	}
	for i := range s.servers {
		if err := s.servers[i].validate(); err != nil {
			return err
		}
		if i > 0 && s.servers[i-1].ID >= s.servers[i].ID {
			return fmt.Errorf("server %q is out of order", s.servers[i].ID)
		}
	}
	if _, ok := s.server(s.leader); !ok && s.leader != "" {
		return fmt.Errorf("leader %q has not announced itself", s.leader)
	}
	return nil
}

// checkWorkers: a record agrees with its sessions.
func (s *State) checkWorkers() error {
	if len(s.workers) != len(s.workerOrder) {
		return errors.New("worker index and order differ")
	}
	sessions := make(map[string]int)
	for _, x := range s.sessionOrder {
		sessions[x.Worker]++
	}
	for i, w := range s.workerOrder {
		if i > 0 && s.workerOrder[i-1].ID >= w.ID || s.workers[w.ID] != w {
			return fmt.Errorf("worker %q is out of order", w.ID)
		}
		if err := ValidateName("worker", "id", w.ID); err != nil {
			return err
		}
		if w.sessions != sessions[w.ID] {
			return fmt.Errorf("worker %s counts %d sessions and has %d", w.ID, w.sessions, sessions[w.ID])
		}
		if len(w.Opens) == 0 || len(w.Opens) > keptOpens || !slices.IsSorted(w.Opens) {
			return fmt.Errorf("worker %s has opens %v", w.ID, w.Opens)
		}
		if w.Session == 0 {
			continue
		}
		if x, ok := s.sessions[w.Session]; !ok || x.Worker != w.ID || x.Incarnation != w.Incarnation || x.State == SessionSuperseded {
			return fmt.Errorf("worker %s and its session %d disagree", w.ID, w.Session)
		}
	}
	return nil
}

func (s *State) checkSessions() error {
	if len(s.sessions) != len(s.sessionOrder) || s.WorkerSessionCount() != len(s.workerSessions()) {
		return errors.New("session index, order and seats differ")
	}
	for i, x := range s.sessionOrder {
		if i > 0 && s.sessionOrder[i-1].ID >= x.ID || s.sessions[x.ID] != x || x.isLease() != (s.seats[x.seat] != x) {
			return fmt.Errorf("session %d is out of order", x.ID)
		}
		check := s.checkSession
		if x.isLease() {
			check = s.checkLease
		}
		if err := cmp.Or(check(x), s.checkSessionOwner(x)); err != nil {
			return fmt.Errorf("session %d: %w", x.ID, err)
		}
	}
	return nil
}

func (s *State) checkSession(x *Session) error {
	w, ok := s.workers[x.Worker]
	switch {
	case !ok || x.record != w:
		return fmt.Errorf("worker %q is unknown", x.Worker)
	case x.ID == 0 || x.ID >= 1<<63:
		return errors.New("id is out of range")
	case x.State < SessionLive || x.State > SessionEvicted:
		return fmt.Errorf("state is %d", x.State)
	case x.State == SessionSuperseded && w.Session == x.ID, !x.barred() && w.Session != x.ID:
		return fmt.Errorf("%s, and the worker's session is %d", x.State, w.Session)
	case x.TTL < MinTTL || x.TTL > MaxTTL:
		return fmt.Errorf("ttl is %s", x.TTL)
	case x.renewed > s.clock || x.Opened > x.renewed || x.Renewal > s.index || x.Incarnation > x.Renewal:
		return errors.New("was renewed in the future")
	case x.Deadline < x.renewed+x.TTL || x.Deadline > x.renewed+MaxTTL:
		return fmt.Errorf("deadline %s does not follow from renewal at %s", x.Deadline, x.renewed)
	case x.Capacity > 0 && x.Held > int(x.Capacity):
		return fmt.Errorf("holds %d above its capacity of %d", x.Held, x.Capacity)
	case len(x.held) != len(x.Keyspaces):
		return errors.New("keyspaces and lists differ")
	}
	total := 0
	for i, id := range x.Keyspaces {
		k, ok := s.keyspaces[id]
		if !ok || i > 0 && x.Keyspaces[i-1] >= id {
			return fmt.Errorf("keyspace %d is unknown or out of order", id)
		}
		if x.TTL > k.Settings.TTL && !k.Deleting {
			return fmt.Errorf("ttl %s is above that of %s", x.TTL, k.Name)
		}
		if err := k.checkList(x, &x.held[i]); err != nil {
			return err
		}
		if k.Settings.Takeover == Fenced && x.barred() && x.held[i].count > 0 {
			return fmt.Errorf("is %s and holds fenced leases of %s", x.State, k.Name)
		}
		total += int(x.held[i].count)
	}
	if total != x.Held {
		return fmt.Errorf("counts %d leases and has %d", x.Held, total)
	}
	return nil
}

// checkList walks one list both ways at once.
func (k *Keyspace) checkList(x *Session, h *held) error {
	n, before := uint32(0), none
	for p := h.head; p != none; p = k.next[p] {
		if p >= k.Partitions || n >= h.count || k.holder[p] != x.seat || k.prev[p] != before {
			return fmt.Errorf("list of %s is broken at %d", k.Name, p)
		}
		n, before = n+1, p
	}
	if n != h.count || h.tail != before {
		return fmt.Errorf("list of %s counts %d and has %d", k.Name, h.count, n)
	}
	return nil
}
