package state

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// parseCommand reads one command of a story:
//
//	announce ID | tick elapsed=D | keepalive SESSION… elapsed=D | expire SESSION@RENEWAL… elapsed=D
//	open session=N worker=W inc=N ks=A,B [cap=N zone=Z owner=O] | join session=N ks=A | leave session=N [restart=true] | close session=N
//	create name=A p=N [ttl=D takeover=fenced handoff=D grace=D] | update … | delete name=A
//	grant ks=N cause=C P:LAST>SESSION… | release session=N cause=C KS/P#TOKEN…
//	drain ks=N cause=C timeout=D P#TOKEN[>SESSION][!]… (! reserves) | revoke ks=N cause=C P#TOKEN@SESSION…
//	level N | put KEY VALUE [lease=N] | del KEY [end=KEY] | compact rev=N
//	cred id=ID name=N role=R [ks=PATTERN created=SECONDS expires=SECONDS by=B] | revokecred id=ID | keyring version=N KEY…
//	lease session=N ttl=SECONDS [owner=O] | revokelease session=N | enqueue name=N session=N [value=V update=true]
//	seq prefix=P [value=V session=N after=N] | alarm member=N | noalarm member=N
//	bar worker=W | unbar worker=W | evict worker=W | retry ks=N p=N | raise token=N
//
// term=N on a leader's duty makes it one of another term.
func (st *storyteller) parseCommand(word string, a args) (Command, error) {
	term := st.term
	if a.str("term") != "" {
		term = a.uint("term")
	}
	ks := KeyspaceID(a.uint("ks"))
	session := SessionID(a.uint("session"))
	elapsed := a.dur("elapsed", 0)
	switch word {
	case "announce":
		return &Announce{Term: term, Server: Server{ID: a.items()[0]}}, nil
	case "tick":
		return &Tick{Term: term, Elapsed: elapsed}, nil
	case "keepalive":
		c := &KeepAlive{Term: term, Elapsed: elapsed}
		for _, it := range a.items() {
			c.Sessions = append(c.Sessions, SessionID(num(it)))
		}
		return c, nil
	case "expire":
		c := &Expire{Term: term, Elapsed: elapsed}
		for _, it := range a.items() {
			n := nums(it, "@")
			c.Sessions = append(c.Sessions, Expiry{SessionID(n[0]), n[1]})
		}
		return c, nil
	case "open":
		return &OpenSession{
			Session: session, Worker: a.str("worker"), Incarnation: a.uint("inc"), Keyspaces: strings.Split(a.str("ks"), ","),
			Capacity: uint32(a.uint("cap")), Zone: a.str("zone"), Addr: a.str("addr"), Owner: a.str("owner"),
		}, nil
	case "join":
		return &JoinKeyspace{Session: session, Keyspace: a.str("ks")}, nil
	case "leave":
		return &LeaveSession{Session: session, Restart: a.str("restart") == "true"}, nil
	case "close":
		return &CloseSession{Session: session}, nil
	case "create":
		return &CreateKeyspace{Name: a.str("name"), Partitions: uint32(a.uint("p")), Settings: a.settings()}, nil
	case "update":
		return &UpdateKeyspace{Name: a.str("name"), Settings: a.settings()}, nil
	case "delete":
		return &DeleteKeyspace{Name: a.str("name")}, nil
	case "bar", "unbar":
		return &BarWorker{Worker: a.str("worker"), Drained: word == "bar"}, nil
	case "evict":
		return &Evict{Worker: a.str("worker")}, nil
	case "retry":
		return &Retry{Keyspace: ks, Partition: uint32(a.uint("p"))}, nil
	case "raise":
		return &RaiseToken{Token: Token(a.uint("token"))}, nil
	}
	if c, known := parseKeyCommand(word, a, term); known {
		return c, nil
	}
	if c, known := parseAccessCommand(word, a); known {
		return c, nil
	}
	return parseLeaseCommand(word, a, term)
}

func parseLeaseCommand(word string, a args, term uint64) (Command, error) {
	ks := KeyspaceID(a.uint("ks"))
	switch word {
	case "grant":
		c := &Grant{Term: term, Keyspace: ks, Cause: a.cause()}
		for _, it := range a.items() {
			n := nums(it, ":>")
			c.Items = append(c.Items, GrantItem{uint32(n[0]), Token(n[1]), SessionID(n[2])})
		}
		return c, nil
	case "release":
		c := &Release{Session: SessionID(a.uint("session")), Cause: a.cause(), Error: a.str("error")}
		for _, it := range a.items() {
			n := nums(it, "/#")
			c.Items = append(c.Items, LeaseRef{KeyspaceID(n[0]), uint32(n[1]), Token(n[2])})
		}
		return c, nil
	case "drain":
		c := &Drain{Term: term, Keyspace: ks, Cause: a.cause(), Timeout: a.dur("timeout", 30*time.Second)}
		for _, it := range a.items() {
			it, reserve := strings.CutSuffix(it, "!")
			n := append(nums(it, "#>"), 0)
			c.Items = append(c.Items, DrainItem{uint32(n[0]), Token(n[1]), SessionID(n[2]), reserve})
		}
		return c, nil
	case "revoke":
		c := &Revoke{Term: term, Keyspace: ks, Cause: a.cause()}
		for _, it := range a.items() {
			n := nums(it, "#@")
			c.Items = append(c.Items, RevokeItem{uint32(n[0]), SessionID(n[2]), Token(n[1])})
		}
		return c, nil
	}
	return nil, fmt.Errorf("unknown word %q", word)
}

func (a args) settings() Settings {
	s := DefaultSettings()
	s.TTL = a.dur("ttl", s.TTL)
	s.HandoffTimeout = a.dur("handoff", s.HandoffTimeout)
	s.RestartGrace = a.dur("grace", 0)
	s.InitialDelay = a.dur("delay", s.InitialDelay)
	if a.str("takeover") == "fenced" {
		s.Takeover = Fenced
	}
	return s
}

func num(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// nums splits an item at any of the characters.
func nums(item, at string) []uint64 {
	var all []uint64
	for _, part := range strings.FieldsFunc(item, func(r rune) bool { return strings.ContainsRune(at, r) }) {
		all = append(all, num(part))
	}
	return all
}
