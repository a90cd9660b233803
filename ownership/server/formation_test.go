package server

import (
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func three() []candidate {
	cs := []candidate{
		{id: "s2", raftAddr: "127.0.0.1:2", expect: 3},
		{id: "s1", raftAddr: "127.0.0.1:1", expect: 3},
		{id: "s3", raftAddr: "127.0.0.1:3", expect: 3},
	}
	hash := judge("s1", 3, cs).hash
	for i := range cs {
		cs[i].hash = hash
	}
	return cs
}

func TestFormation(t *testing.T) {
	cases := map[string]struct {
		self   string
		expect int
		change func([]candidate) []candidate
		want   string // part of waiting; empty: bootstrap
	}{
		"lowest id forms":        {self: "s1", expect: 3},
		"others wait":            {self: "s2", expect: 3, want: "s1, the lowest id"},
		"too few":                {self: "s1", expect: 3, change: func(c []candidate) []candidate { return c[:2] }, want: "2 of 3"},
		"too many":               {self: "s1", expect: 3, change: func(c []candidate) []candidate { return append(c, candidate{id: "s4", expect: 3}) }, want: "more than"},
		"one has state":          {self: "s1", expect: 3, change: func(c []candidate) []candidate { c[2].hasState = true; return c }, want: "s3 belongs to a cluster"},
		"another expectation":    {self: "s1", expect: 3, change: func(c []candidate) []candidate { c[2].expect = 5; return c }, want: "s3 has --bootstrap-expect 5"},
		"another sight":          {self: "s1", expect: 3, change: func(c []candidate) []candidate { c[0].hash = "else"; return c }, want: "s2 does not see"},
		"not asked to form":      {self: "s1", expect: 0, want: "no --bootstrap-expect"},
		"an address has changed": {self: "s1", expect: 3, change: func(c []candidate) []candidate { c[2].raftAddr = "127.0.0.1:9"; return c }, want: "does not see"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			seen := three()
			if c.change != nil {
				seen = c.change(seen)
			}
			v := judge(c.self, c.expect, seen)
			if v.bootstrap != (c.want == "") || !strings.Contains(v.waiting, c.want) {
				t.Errorf("bootstrap %v, waiting %q; want %q", v.bootstrap, v.waiting, c.want)
			}
		})
	}
}

// Whatever order gossip shows, all servers see one configuration, and never
// do two of them form it.
func TestFormationHasOneFounder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := three()
		seed := rapid.Uint64().Draw(t, "seed")
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(seen), func(i, j int) { seen[i], seen[j] = seen[j], seen[i] })
		founders := 0
		for _, self := range []string{"s1", "s2", "s3"} {
			v := judge(self, 3, seen)
			if v.bootstrap {
				founders++
			}
			for i, want := range []string{"s1", "s2", "s3"} {
				if v.peers[i].id != want {
					t.Fatalf("peers out of order: %v", v.peers)
				}
			}
		}
		if founders != 1 {
			t.Fatalf("%d founders", founders)
		}
	})
}
