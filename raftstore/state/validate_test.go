package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestOddNamesAreRefusedOrKeptExactly is O-79.
func TestOddNamesAreRefusedOrKeptExactly(t *testing.T) {
	for _, name := range []string{
		"", " ", "a b", "a/b", "/a", "a//b", "/", "..", ".", "a..b", "%2F", "#", "?", "\u00a0", "\u200f", "🙂",
		strings.Repeat("a", 129), strings.Repeat("a", 300), "a\nb", "a\x00b", "\"", "'", "é", "e\u0301", "\xff", "a\x7f", "a,b", "a=b", "*",
	} {
		err := ValidateName("keyspace", "name", name)
		var r *Refusal
		if !errors.As(err, &r) {
			t.Errorf("%q is taken", name)
			continue
		}
		if r.Reason != ReasonInvalid || r.Field != "name" || !strings.Contains(r.Limit, "A-Z a-z 0-9") || len(r.Value) > 64 {
			t.Errorf("%q: the refusal does not help: %v", name, err)
		}
		if strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("%q: control characters in %q", name, err.Error())
		}
	}
	for _, name := range []string{"a", "A-1_b.c:9", "worker-0.example.com:8080", strings.Repeat("a", 128), "-", "_", ".a", "a."} {
		if err := ValidateName("worker", "id", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestOpenSessionChecksEveryField(t *testing.T) {
	s := crowd(t, 4, 0)
	labels := map[string]string{}
	for i := range MaxLabels + 1 {
		labels[fmt.Sprint(i)] = "v"
	}
	long := strings.Repeat("x", MaxTextLen+1)
	for field, change := range map[string]func(*OpenSession){
		"session_id": func(c *OpenSession) { c.Session = 0 },
		"worker_id":  func(c *OpenSession) { c.Worker = "a/b" },
		"keyspaces":  func(c *OpenSession) { c.Keyspaces = nil },
		"endpoint":   func(c *OpenSession) { c.Endpoint = long },
		"zone":       func(c *OpenSession) { c.Zone = "a\x00" },
		"addr":       func(c *OpenSession) { c.Addr = "\xff" },
		"labels":     func(c *OpenSession) { c.Labels = labels },
		"labels ":    func(c *OpenSession) { c.Labels = map[string]string{"": "v"} },
		"labels  ":   func(c *OpenSession) { c.Labels = map[string]string{"k": long[:MaxLabelLen+1]} },
		"labels   ":  func(c *OpenSession) { c.Labels = map[string]string{long[:MaxLabelLen+1]: "v"} },
		"name":       func(c *OpenSession) { c.Keyspaces = []string{"k", "unknown"} },
	} {
		c := &OpenSession{Session: 1, Worker: "w", Keyspaces: []string{"k"}}
		change(c)
		r := s.Apply(2, 1, &Batch{Commands: []Command{c}})
		var refusal *Refusal
		if !errors.As(r[0].Err, &refusal) || refusal.Field != strings.TrimSpace(field) || refusal.Limit == "" {
			t.Errorf("%s: %v", field, r[0].Err)
		}
		if s.SessionCount() != 0 || len(s.workers) != 0 {
			t.Fatalf("%s: a refused session has left something", field)
		}
	}
}

func TestFirstTokenRisesWithTheClock(t *testing.T) {
	base := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		at   time.Time
		want Token
	}{
		{base.Add(-time.Hour), 1},
		{base, 1},
		{base.Add(10 * time.Millisecond), 1 << 13},
		{base.Add(24 * time.Hour), 8_640_000 << 13},
		{base.Add(290 * 365 * 24 * time.Hour), 290 * 365 * 8_640_000 << 13},
	} {
		if got := FirstToken(c.at); got != c.want {
			t.Errorf("at %s: %d, want %d", c.at, got, c.want)
		}
	}
	if got := FirstToken(base.AddDate(900, 0, 0)); got > MaxToken || got < MaxToken>>1 {
		t.Errorf("%d is beyond the limit", got)
	}
}

func TestNothingButALeaderIsLetInBeforeBootstrap(t *testing.T) {
	s := New()
	r := s.Apply(1, 1, &Batch{Commands: []Command{
		&Announce{Term: 1, Server: Server{ID: "s1"}}, &Tick{Term: 1},
		&CreateKeyspace{Name: "k", Partitions: 1, Settings: DefaultSettings()},
		&Bootstrap{ClusterID: ""}, &Bootstrap{ClusterID: "c", FirstToken: MaxToken + 1},
		&Bootstrap{ClusterID: "c", FirstToken: 5}, &Bootstrap{ClusterID: "d", FirstToken: 1}, nil,
	}})
	for i, want := range []Reason{"", "", ReasonConflict, ReasonInvalid, ReasonInvalid, "", ReasonExists, ReasonInvalid} {
		if ReasonOf(r[i].Err) != want {
			t.Errorf("command %d: %v", i+1, r[i].Err)
		}
	}
	if v, ok := s.Leader(); !ok || v.ID != "s1" || s.ClusterID() != "c" || s.LastToken() != 4 {
		t.Errorf("leader %v, cluster %s, token %d", v, s.ClusterID(), s.LastToken())
	}
}

func TestEveryNumberHasItsWord(t *testing.T) {
	seen := map[string]bool{}
	for k := KindGrant; k <= KindKeyring; k++ {
		word := k.String()
		if word == "" || word[0] >= '0' && word[0] <= '9' || seen[word] {
			t.Errorf("kind %d is %q", uint8(k), word)
		}
		seen[word] = true
	}
	clear(seen)
	for c := CauseNone; c <= CauseCredentialRevoked; c++ {
		word := c.String()
		if word == "" || word[0] >= '0' && word[0] <= '9' || seen[word] {
			t.Errorf("cause %d is %q", uint8(c), word)
		}
		seen[word] = true
	}
	if Kind(200).String() != "200" || Takeover(0).String() != "0" || Fenced.String() != "fenced" || SessionEvicted.String() != "evicted" {
		t.Error("words are wrong")
	}
}

func TestRefusalNamesFieldValueLimitAndOwner(t *testing.T) {
	err := fmt.Errorf("release: %w", &Refusal{Reason: ReasonNotHolder, What: "lease", Field: "partition", Value: "k/1", Limit: "the holder", Token: 6, Owner: "w2"})
	if want := `release: lease partition "k/1": not holder: the holder (held by w2, token 6)`; err.Error() != want {
		t.Errorf("got %s", err)
	}
	if !errors.Is(err, &Refusal{Reason: ReasonNotHolder}) || errors.Is(err, &Refusal{Reason: ReasonStrict}) || ReasonOf(err) != ReasonNotHolder {
		t.Error("the reason is not found in the chain")
	}
	if ReasonOf(errors.New("other")) != "" {
		t.Error("a reason where there is none")
	}
}
