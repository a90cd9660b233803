package state

import "testing"

// O-19: tokens rise as integers over every width that others have overflowed,
// and at the top the next grant is refused; nothing wraps or repeats.
func TestTokensCrossEveryWidth(t *testing.T) {
	for _, limit := range []Token{1<<15 - 1, 1 << 16, 1<<31 - 1, 1<<32 - 1, MaxToken} {
		s := New()
		first := limit - 1 // the first grant's token
		must := func(c Command) Result {
			t.Helper()
			r := s.Apply(s.index+1, 1, &Batch{Commands: []Command{c}})[0]
			if r.Err != nil {
				t.Fatalf("limit %d: %v", limit, r.Err)
			}
			return r
		}
		must(&Bootstrap{ClusterID: "c", FirstToken: first})
		ks := must(&CreateKeyspace{Name: "k", Partitions: 4, Settings: DefaultSettings()}).Keyspace
		must(&OpenSession{Session: 1, Worker: "w", Keyspaces: []string{"k"}})
		last := first - 1
		for p := range uint32(3) {
			r := s.Apply(s.index+1, 1, &Batch{Commands: []Command{&Grant{Term: 1, Keyspace: ks.ID, Items: []GrantItem{{Partition: p, Session: 1}}}}})[0]
			if last == MaxToken {
				spent := ReasonOf(r.Err) == ReasonTokensSpent || len(r.Items) > 0 && ReasonOf(r.Items[0]) == ReasonTokensSpent
				if !spent || s.LastToken() != MaxToken {
					t.Errorf("a grant above %d: %+v, counter at %d", MaxToken, r, s.LastToken())
				}
				continue
			}
			if r.Err != nil || len(r.Tokens) != 1 || r.Tokens[0] != last+1 {
				t.Fatalf("limit %d: granted %v after %d: %v", limit, r.Tokens, last, r.Err)
			}
			last = r.Tokens[0]
		}
	}
}
