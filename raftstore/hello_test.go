package raftstore

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

func TestHelloComesBackAsItWasSent(t *testing.T) {
	h := hello{cluster: "c1", from: "s1#aa", to: "s2#bb", feature: 7, version: "1.2.3"}
	r := bytes.NewReader(append(h.encode(), "raft"...))
	if got, err := readHello(r); err != nil || got != h {
		t.Errorf("read %+v, %v", got, err)
	}
	if r.Len() != len("raft") {
		t.Errorf("%d bytes are left, what follows the hello is Raft's", r.Len())
	}
	w := welcome{code: helloStranger, cluster: "c1", self: "s2#bb", index: 1 << 40, text: "no, thank you"}
	if got, err := readWelcome(bytes.NewReader(w.encode())); err != nil || got != w {
		t.Errorf("read %+v, %v", got, err)
	}
	long := hello{version: strings.Repeat("x", 9999)}
	if got, err := readHello(bytes.NewReader(long.encode())); err != nil || len(got.version) != maxHelloText {
		t.Errorf("a long text: %d bytes, %v", len(got.version), err)
	}
}

// A later version appends fields: ours are still read.
func TestHelloOfALaterVersionIsRead(t *testing.T) {
	h := hello{cluster: "c1", from: "s1#aa", to: "s2#bb", feature: 7, version: "9"}
	body := append(h.encode()[helloHead:], 5, 'e', 'x', 't', 'r', 'a')
	b := frame(body)
	b[len(helloMagic)] = helloVersion + 1
	if got, err := readHello(bytes.NewReader(b)); err != nil || got != h {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestJudgeOfHellos(t *testing.T) {
	conf := raft.Configuration{Servers: []raft.Server{{ID: "s1#aa"}, {ID: "s2#bb"}}}
	for name, c := range map[string]struct {
		h       hello
		cluster string
		level   state.Feature
		code    helloCode
		text    []string
	}{
		"one of us":       {h: hello{cluster: "c1", from: "s1#aa", to: "s2#bb", feature: 1}, cluster: "c1", code: helloOK},
		"no cluster yet":  {h: hello{from: "s1#aa", to: "s2#bb", feature: 1}, cluster: "c1", code: helloOK},
		"nor has ours":    {h: hello{cluster: "c1", from: "s1#aa", to: "s2#bb", feature: 1}, code: helloOK},
		"another cluster": {h: hello{cluster: "c2", from: "s1#aa", to: "s2#bb", feature: 1}, cluster: "c1", code: helloForeign, text: []string{"c1", "c2", "empty its data directory"}},
		"our former self": {h: hello{cluster: "c1", from: "s1#aa", to: "s2#b0", feature: 1}, cluster: "c1", code: helloNotMe, text: []string{"s2 has another data directory now, bb instead of b0"}},
		"another server":  {h: hello{cluster: "c1", from: "s1#aa", to: "s3#cc", feature: 1}, cluster: "c1", code: helloNotMe, text: []string{"s2#bb", "s3#cc"}},
		"not a member":    {h: hello{cluster: "c1", from: "s9#99", to: "s2#bb", feature: 1}, cluster: "c1", code: helloStranger},
		"too old":         {h: hello{cluster: "c1", from: "s1#aa", to: "s2#bb", feature: 1, version: "0.1"}, cluster: "c1", level: 2, code: helloTooOld, text: []string{"level 2", "0.1", "up to 1", "upgrade"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := testGreeter("s2#bb", c.cluster)
			g.level = func() state.Feature { return max(c.level, 1) }
			g.members.apply(7, conf)
			w := g.judge(&c.h)
			if w.code != c.code || w.self != "s2#bb" || w.cluster != c.cluster {
				t.Errorf("welcome %+v, want code %d", w, c.code)
			}
			if c.code == helloStranger && w.index != 7 {
				t.Errorf("of configuration %d, want 7", w.index)
			}
			for _, part := range c.text {
				if !strings.Contains(w.text, part) {
					t.Errorf("%q does not contain %q", w.text, part)
				}
			}
		})
	}
}

func testGreeter(self raft.ServerID, cluster string) *greeter {
	return &greeter{
		self: self, feature: 1, metrics: noObserver{}, log: slog.New(slog.DiscardHandler), members: new(members), repeats: newRepeats(), refused: map[raft.ServerID]refusal{},
		level:   func() state.Feature { return 1 },
		cluster: func() string { return cluster },
	}
}

// A server without a cluster belongs to the first that calls: the logs of two
// must not mix in it before it has applied an entry that tells.
func TestServerWithoutAClusterListensToOneOnly(t *testing.T) {
	g := testGreeter("s9#99", "")
	if w := g.judge(&hello{from: "s1#aa", to: "s9#99", feature: 1}); w.code != helloOK {
		t.Errorf("called by a server without a cluster: %+v", w)
	}
	if w := g.judge(&hello{cluster: "c1", from: "s1#aa", to: "s9#99", feature: 1}); w.code != helloOK {
		t.Errorf("called by c1: %+v", w)
	}
	if w := g.judge(&hello{cluster: "c2", from: "s1#ee", to: "s9#99", feature: 1}); w.code != helloForeign {
		t.Errorf("then called by c2: %+v", w)
	}
}

// The one that dials checks as well: the other may be of an earlier version, or
// not know yet what cluster it belongs to.
func TestCallerRefusesWhoIsNotMeant(t *testing.T) {
	for name, c := range map[string]struct {
		w    welcome
		want string // part of the error; empty: none
	}{
		"as meant":         {w: welcome{self: "s2#bb", cluster: "c1"}},
		"another server":   {w: welcome{self: "s3#cc", cluster: "c1"}, want: "s3#cc answers at the address of server s2#bb"},
		"another cluster":  {w: welcome{self: "s2#bb", cluster: "c2"}, want: "cannot be joined"},
		"an unknown no":    {w: welcome{code: 99, self: "s2#bb"}, want: "refused for reason 99"},
		"an explained no":  {w: welcome{code: 99, self: "s2#bb", text: "too late"}, want: "too late"},
		"not a member now": {w: welcome{code: helloStranger, self: "s2#bb", cluster: "c1", index: 12}},
	} {
		t.Run(name, func(t *testing.T) {
			g := testGreeter("s1#aa", "c1")
			g.members.apply(11, raft.Configuration{})
			a, b := net.Pipe()
			go func() {
				_, _ = readHello(b)
				_, _ = b.Write(c.w.encode())
			}()
			err := g.call(a, "s2#bb", time.Second)
			a.Close()
			b.Close()
			var refused *refusedError
			if (err == nil) != (c.want == "") || err != nil && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("call: %v; want %q", err, c.want)
			}
			if text := g.refusals([]raft.Server{{ID: "s2#bb"}}); !strings.Contains(text, c.want) || c.want == "" && text != "" {
				t.Errorf("Refused says %q; want %q", text, c.want)
			}
			if got, want := g.removed(), c.w.code == helloStranger; got != want {
				t.Errorf("removed is %v, want %v", got, want)
			}
		})
	}
}

// Callers that say nothing, or too much, keep nobody else from being heard, and
// are sent away.
func TestSilentCallersDoNotBlockTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCluster(t, 3, onDisk)
		defer c.stopAll()
		l, f := c.leader(), c.follower()
		for i := range 50 {
			conn, err := c.net.at("10.0.0.99:1").Dial(l.addr, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if i%2 == 0 {
				if _, err := conn.Write([]byte("GET / HTTP/1.1\r\n")[:helloHead]); err != nil {
					t.Fatal(err)
				}
			}
		}
		f.crash()
		start := time.Now()
		f.start()
		c.do(mark("x"))
		c.within(time.Second, "server that has caught up", func() (ok bool) {
			f.store.View(func(st *state.State) { ok = marked(st, "x") })
			return ok
		})
		t.Logf("caught up after %v", time.Since(start))
		time.Sleep(helloDeadline + time.Second)
		if n := c.net.openTo(l.addr, "10.0.0.99:1"); n != 0 {
			t.Errorf("%d connections of silent callers are still open", n)
		}
	})
}

// openTo counts the ends of connections that one address has to another.
func (n *memNet) openTo(from, to string) (count int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		if c.from == from && c.to == to {
			count++
		}
	}
	return count
}

func FuzzHello(f *testing.F) {
	h := hello{cluster: "c1", from: "s1#aa", to: "s2#bb", feature: 7, version: "1.2.3"}
	w := welcome{code: helloStranger, cluster: "c1", self: "s2#bb", index: 9, text: "no"}
	f.Add(h.encode())
	f.Add(w.encode())
	f.Add([]byte("LHR\x01\xff\xff"))
	f.Add(frame([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil {
			if again, err := readHello(bytes.NewReader(h.encode())); err != nil || again != h {
				t.Errorf("%+v is read back as %+v, %v", h, again, err)
			}
		}
		if w, err := readWelcome(bytes.NewReader(b)); err == nil {
			if again, err := readWelcome(bytes.NewReader(w.encode())); err != nil || again != w {
				t.Errorf("%+v is read back as %+v, %v", w, again, err)
			}
		}
	})
}
