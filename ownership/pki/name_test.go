package pki

import (
	"net/url"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// spellings are names and how certificates have them.
var spellings = map[string]Name{
	"leasehold://leasehold/server/s1":                         {"leasehold", access.Server, "s1", access.Everywhere()},
	"leasehold://Eu-1.orders_x/worker/w:1.a-b_":               {"Eu-1.orders_x", access.Worker, "w:1.a-b_", access.Everywhere()},
	"leasehold://c/reader/r?keyspace=orders&keyspace=pay-*":   {"c", access.Reader, "r", access.Scope{Keyspaces: []string{"orders", "pay-*"}}},
	"leasehold://c/operator/o?keyspace=*&prefix=/app/":        {"c", access.Operator, "o", access.Scope{Keyspaces: []string{"*"}, Prefixes: []string{"/app/"}}},
	"leasehold://c/worker/w?prefix=":                          {"c", access.Worker, "w", access.Scope{Prefixes: []string{""}}},
	"leasehold://c/worker/w?prefix=a%20%26%3D%2B%25%00%FF%23": {"c", access.Worker, "w", access.Scope{Prefixes: []string{"a &=+%\x00\xff#"}}},
}

func TestNameHasOneSpelling(t *testing.T) {
	for uri, n := range spellings {
		if got := n.URI(); got != uri {
			t.Errorf("%+v is %s, want %s", n, got, uri)
		}
		got, err := ParseName(uri)
		if err != nil || got.URI() != uri || got.Cluster != n.Cluster || got.Role != n.Role || got.Name != n.Name || !got.Scope.Within(n.Scope) || !n.Scope.Within(got.Scope) {
			t.Errorf("%s is %+v, %v", uri, got, err)
		}
		// What package x509 does with it loses nothing.
		if u, err := url.Parse(uri); err != nil || u.String() != uri {
			t.Errorf("%s becomes %v, %v", uri, u, err)
		}
	}
}

// tricks look like a name, or mean one to a reader that is less strict.
var tricks = []string{
	"", "leasehold:", "leasehold://", "leasehold://c", "leasehold://c/worker", "leasehold://c/worker/", "leasehold:///worker/w",
	"leasehold://c/worker/w/", "leasehold://c//worker/w", "leasehold://c/worker/w/x", "leasehold://c/worker/../server/s", "leasehold://c/worker/..",
	"Leasehold://c/worker/w", "LEASEHOLD://c/worker/w", "leasehold://c/Worker/w", "leasehold://c/SERVER/w", "leasehold://c/role 4/w", "leasehold://c/none/w",
	"leasehold://c/worker/%77", "leasehold://c/%77orker/w", "leasehold://%63/worker/w", "leasehold://c/worker/w%00", "leasehold://c/worker/w\x00", "leasehold://c/worker/w%2Fx",
	"leasehold://user@c/worker/w", "leasehold://user:pw@c/worker/w", "leasehold://c:7400/worker/w", "leasehold://c:/worker/w", "leasehold://[::1]/worker/w",
	"leasehold://.c/worker/w", "leasehold://c./worker/w", "leasehold://a..b/worker/w", "leasehold://c /worker/w", " leasehold://c/worker/w", "leasehold://c/worker/w ", "leasehold://c/worker/w\n",
	"leasehold://c/worker/w#", "leasehold://c/worker/w#f", "leasehold://c/worker/w?", "leasehold://c/worker/w?#", "leasehold://c/worker/w;a",
	"leasehold://c/worker/w?keyspace=*&prefix=", "leasehold://c/worker/w?keyspace=", "leasehold://c/worker/w?keyspace=a/b", "leasehold://c/worker/w?keyspace=%2A",
	"leasehold://c/worker/w?prefix=/a&keyspace=b", "leasehold://c/worker/w?keyspace=a&", "leasehold://c/worker/w?&keyspace=a", "leasehold://c/worker/w?keyspace=a&&keyspace=b",
	"leasehold://c/worker/w?keyspace", "leasehold://c/worker/w?prefix", "leasehold://c/worker/w?Keyspace=a", "leasehold://c/worker/w?role=server", "leasehold://c/worker/w?keyspace=a;prefix=b",
	"leasehold://c/worker/w?prefix=%c3", "leasehold://c/worker/w?prefix=%4", "leasehold://c/worker/w?prefix=%zz", "leasehold://c/worker/w?prefix=a+b", "leasehold://c/worker/w?prefix=%61", "leasehold://c/worker/w?prefix=a?b",
	"leasehold://c/server/s?keyspace=a", "leasehold://c/server/s?keyspace=*", "leasehold:c/worker/w", "leasehold:/c/worker/w", "spiffe://c/worker/w", "leasehold://ü/worker/w", "leasehold://c/worker/ü",
}

func TestOtherSpellingsAreNoNames(t *testing.T) {
	long := []string{
		"leasehold://" + strings.Repeat("c", maxNameLen+1) + "/worker/w",
		"leasehold://c/worker/" + strings.Repeat("w", maxNameLen+1),
		"leasehold://c/worker/w?prefix=" + strings.Repeat("a", access.MaxPrefixLen+1),
		"leasehold://c/worker/w?keyspace=a" + strings.Repeat("&keyspace=a", access.MaxPatterns),
		"leasehold://c/worker/w?prefix=" + strings.Repeat("a", maxURILen),
	}
	for _, uri := range append(long, tricks...) {
		n, err := ParseName(uri)
		if err == nil {
			t.Errorf("%q is %+v", clip(uri), n)
		} else if len(err.Error()) > 1500 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func FuzzParseName(f *testing.F) {
	for uri := range spellings {
		f.Add(uri)
	}
	for _, uri := range tricks {
		f.Add(uri)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		n, err := ParseName(uri)
		if err != nil {
			if n.Role != 0 {
				t.Fatal("an error with a role")
			}
			return
		}
		if n.URI() != uri || n.Validate() != nil {
			t.Fatalf("%q is %+v, which is %q", uri, n, n.URI())
		}
		u, err := url.Parse(uri)
		if err != nil || u.String() != uri || u.Host != n.Cluster || u.Path != "/"+n.Role.String()+"/"+n.Name || u.User != nil || u.Fragment != "" {
			t.Fatalf("package url reads %q as %+v, %v", uri, u, err)
		}
	})
}
