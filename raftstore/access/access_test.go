package access

import (
	"bytes"
	"context"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestNobodyMayDoNothing(t *testing.T) {
	id := FromContext(context.Background())
	if id.Role != 0 || id.Scope.Keyspace("orders") || id.Scope.Key([]byte("k")) || id.Scope.AllKeys() || id.Scope.AllKeyspaces() || id.MayUse("") || id.Owner() != "" {
		t.Fatalf("nobody may do something: %+v", id)
	}
}

func TestScope(t *testing.T) {
	s := Scope{Keyspaces: []string{"orders", "pay-*"}, Prefixes: []string{"/app/", "x\xff"}}
	for name, want := range map[string]bool{"orders": true, "orders2": false, "order": false, "pay-": true, "pay-eu": true, "pay": false, "": false, "*": false} {
		if got := s.Keyspace(name); got != want {
			t.Errorf("Keyspace(%q) = %v, want %v", name, got, want)
		}
	}
	for _, c := range []struct {
		key, end string
		open     bool // no end
		want     bool
	}{
		{"/app/", "/app0", false, true}, {"/app/a", "/app/z", false, true}, {"/app/a", "/app/a\x00", false, true},
		{"/app/a", "/app1", false, false}, {"/app", "/app0", false, false}, {"/app/a", "", true, false},
		{"x\xff", "y", false, true}, {"x\xff", "y\x00", false, false}, {"/app/", "y", false, false},
	} {
		end := []byte(c.end)
		if c.open {
			end = nil
		}
		if got := s.Range([]byte(c.key), end); got != c.want {
			t.Errorf("Range(%q, %q) = %v, want %v", c.key, c.end, got, c.want)
		}
	}
	if all := Everywhere(); !all.Range(nil, nil) || !all.Range([]byte("k"), nil) || !all.Keyspace("x") {
		t.Error("everywhere has bounds")
	}
	if bytes.Equal(After([]byte("a\xff")), []byte("b")) == false || After([]byte("\xff\xff")) != nil || After(nil) != nil {
		t.Error("After is wrong")
	}
}

func TestScopeOf(t *testing.T) {
	if s := ScopeOf(nil, nil); !s.AllKeys() || !s.AllKeyspaces() {
		t.Error("no bounds at all mean everywhere")
	}
	if s := ScopeOf([]string{"orders"}, nil); s.Key([]byte("k")) || !s.Keyspace("orders") {
		t.Error("who names keyspaces alone gets no key")
	}
	if s := ScopeOf(nil, []string{"/a"}); s.Keyspace("orders") || !s.Key([]byte("/a")) {
		t.Error("who names prefixes alone gets no keyspace")
	}
	for _, bad := range []Scope{
		{Keyspaces: []string{""}}, {Keyspaces: []string{"a*b"}}, {Keyspaces: []string{"a/b"}}, {Keyspaces: []string{strings.Repeat("a", MaxPatternLen+1)}},
		{Prefixes: []string{strings.Repeat("a", MaxPrefixLen+1)}}, {Keyspaces: make([]string, MaxPatterns+1)}, {Prefixes: make([]string, MaxPatterns+1)},
	} {
		if bad.Validate() == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

func TestWithin(t *testing.T) {
	outer := Scope{Keyspaces: []string{"pay-*"}, Prefixes: []string{"/app/"}}
	for _, in := range []Scope{{}, outer, {Keyspaces: []string{"pay-eu", "pay-e*"}, Prefixes: []string{"/app/x"}}} {
		if !in.Within(outer) {
			t.Errorf("%v is within", in)
		}
	}
	for _, out := range []Scope{Everywhere(), {Keyspaces: []string{"pay*"}}, {Prefixes: []string{"/app"}}} {
		if out.Within(outer) {
			t.Errorf("%v is not within", out)
		}
	}
}

func TestToken(t *testing.T) {
	secret := bytes.Repeat([]byte{0xfb}, SecretLen)
	token := Token("abc123abc123", secret)
	id, got, err := ParseToken(token)
	if err != nil || id != "abc123abc123" || !bytes.Equal(got, secret) {
		t.Fatal(id, got, err)
	}
	c := Credential{ID: id, Hash: HashSecret(secret), Role: Worker, Name: "w", Expires: time.UnixMilli(1000)}
	if !c.Matches(secret) || c.Matches(secret[1:]) || c.Matches(nil) {
		t.Error("Matches is wrong")
	}
	if c.Expired(time.UnixMilli(999)) || !c.Expired(time.UnixMilli(1000)) {
		t.Error("Expired is wrong")
	}
	for _, bad := range []string{"", "lhc_", token[:len(token)-1], token + "A", "LHC_" + token[4:], strings.Replace(token, "abc123abc123", "abc123abc12!", 1), token[:len(token)-1] + "="} {
		if _, _, err := ParseToken(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		} else if len(bad) > 20 && strings.Contains(err.Error(), bad[17:]) {
			t.Errorf("the error tells the secret: %v", err)
		}
	}
}

func TestIdentityTravels(t *testing.T) {
	c := Credential{ID: "abc123abc123", Name: "batch", Role: Worker, Scope: Scope{Keyspaces: []string{"orders"}, Prefixes: []string{"/a", "x\xff"}}, Expires: time.UnixMilli(5000).UTC()}
	id := c.Identity()
	got, err := Decode(id.Encode())
	if err != nil || got.Owner() != id.Owner() || !reflect.DeepEqual(got.Scope, id.Scope) || got.Role != Worker || !got.Expires.Equal(id.Expires) || !got.Scope.Within(id.Scope) {
		t.Fatal(got, err)
	}
	for _, bad := range []string{"", "{}", "null", Anybody().Encode(), encoded(`{}`), encoded(`null`),
		encoded(`{"source":"credential","role":3,"name":"x","scope":{}}`), encoded(`{"source":"certificate","role":9,"name":"x","scope":{}}`)} {
		if id, err := Decode(bad); err == nil || id.Role != 0 {
			t.Errorf("%q is an identity: %v", bad, id)
		}
	}
}

func encoded(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }

func TestMayUse(t *testing.T) {
	a := Identity{Source: Certificate, Role: Worker, Name: "a", Scope: Everywhere()}
	b := Identity{Source: Certificate, Role: Worker, Name: "b", Scope: Everywhere()}
	boss := Identity{Source: Certificate, Role: Operator, Name: "a", Scope: Everywhere()}
	bounded := Identity{Source: Bearer, Role: Operator, Credential: "abc123abc123", Scope: Scope{Keyspaces: []string{"*"}}}
	if !a.MayUse(a.Owner()) || b.MayUse(a.Owner()) || !b.MayUse("") || !boss.MayUse(a.Owner()) || bounded.MayUse(a.Owner()) {
		t.Error("MayUse is wrong")
	}
	if a.Owner() == boss.Owner() {
		t.Error("a worker and an operator of one name have one owner")
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(Token("abc123abc123", make([]byte, SecretLen)))
	f.Add("lhc__")
	f.Fuzz(func(t *testing.T, token string) {
		id, secret, err := ParseToken(token)
		if err == nil && Token(id, secret) != token {
			t.Fatalf("%q is not %q", Token(id, secret), token)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(Identity{Source: Certificate, Name: "w1", Role: Worker, Scope: Everywhere()}.Encode())
	f.Fuzz(func(t *testing.T, s string) {
		id, err := Decode(s)
		if err != nil {
			if id.Role != 0 {
				t.Fatal("an error with an identity")
			}
			return
		}
		if id.Owner() == "" || id.Source == Open {
			t.Fatalf("%q is %v", s, id)
		}
	})
}
