package httpfence_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

// raw sends bytes to a server as they are and returns its answer.
func raw(t *testing.T, addr, request string) answer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, request) }() // the server may answer before it has read all
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body)}
}

// O-72: the guarded request with each header value, as raw bytes over a real
// connection.
func TestOddHeaders(t *testing.T) {
	const token, partition, owner = "Leasehold-Token: ", "Leasehold-Partition: ", "Leasehold-Owner: "
	for _, c := range []struct {
		name, headers string // what replaces the header of that kind
		status        int
		reason        string
		mentions      string
	}{
		{"absent", "", 428, "missing", "Leasehold-Token"},
		{"empty", token + "\r\n", 400, "malformed", `""`},
		{"abc", token + "abc\r\n", 400, "malformed", `"abc"`},
		{"0", token + "0\r\n", 400, "malformed", "1 to 9007199254740991"},
		{"-1", token + "-1\r\n", 400, "malformed", `"-1"`},
		{"+5", token + "+5\r\n", 400, "malformed", `"+5"`},
		{"0x10", token + "0x10\r\n", 400, "malformed", `"0x10"`},
		{"1e3", token + "1e3\r\n", 400, "malformed", `"1e3"`},
		{"50.0", token + "50.0\r\n", 400, "malformed", `"50.0"`},
		{"1_000", token + "1_000\r\n", 400, "malformed", `"1_000"`},
		// RFC 9110 §5.5: the space is not part of the value, the server sees 50.
		{"trailing space", token + "50 \r\n", 200, "", ""},
		{"inner space", token + "5 0\r\n", 400, "malformed", `"5 0"`},
		{"12,13", token + "12,13\r\n", 400, "malformed", `"12,13"`},
		{"two headers", token + "50\r\n" + token + "50\r\n", 400, "malformed", "exactly one value"},
		{"two headers, other case", token + "50\r\nleasehold-token: 51\r\n", 400, "malformed", "exactly one value"},
		{"the highest", token + "9007199254740991\r\n", 200, "", ""},
		{"2^53", token + "9007199254740992\r\n", 400, "malformed", "1 to 9007199254740991"},
		{"9007199254740993", token + "9007199254740993\r\n", 400, "malformed", "1 to 9007199254740991"},
		{"18446744073709551616", token + "18446744073709551616\r\n", 400, "malformed", "1 to 9007199254740991"},
		{"007", token + "007\r\n", 400, "malformed", `"007"`},
		{"Arabic digits", token + "٥\r\n", 400, "malformed", "digits"},
		{"older", token + "49\r\n", 409, "stale", `"current_token":"50"`},
		{"folded", token + "5\r\n 0\r\n", 400, "malformed", `"5 0"`},
		{"bare LF smuggles a second one", token + "50\nLeasehold-Token: 51\r\n", 400, "malformed", "exactly one value"},
		{"CR inside", token + "5\r0\r\n", 400, "", "400 Bad Request"},
		{"NUL inside", token + "5\x000\r\n", 400, "", "400 Bad Request"},
		{"100 KiB", token + strings.Repeat("5", 100<<10) + "\r\n", 400, "malformed", "1 to 9007199254740991"},
		{"2 MiB", token + strings.Repeat("5", 2<<20) + "\r\n", 431, "", ""},

		{"no partition", partition, 428, "missing", "Leasehold-Partition"},
		{"partition 4294967296", partition + "4294967296\r\n", 400, "malformed", "4294967295"},
		{"partition 017", partition + "017\r\n", 400, "malformed", `"017"`},
		{"no owner", owner, 428, "missing", "Leasehold-Owner"},
		{"empty owner", owner + "\r\n", 400, "malformed", "1 to 255"},
		{"owner joined by a proxy", owner + "a, b\r\n", 400, "malformed", "1 to 255"},
		{"raw UTF-8 owner", owner + "wörker\r\n", 400, "malformed", "1 to 255"},
		{"cut escape", owner + "a%2\r\n", 400, "malformed", "1 to 255"},
		{"escape of no hex", owner + "a%+1\r\n", 400, "malformed", "1 to 255"},
		{"escaped NUL", owner + "a%00\r\n", 400, "malformed", "1 to 255"},
		{"owner of 256 bytes", owner + strings.Repeat("a", 256) + "\r\n", 400, "malformed", "1 to 255"},
		{"empty resource", "Leasehold-Resource:\r\n" + token + "50\r\n", 400, "malformed", "Leasehold-Resource"},
		{"two resources", "Leasehold-Resource: a\r\nLeasehold-Resource: b\r\n" + token + "50\r\n", 400, "malformed", "Leasehold-Resource"},
	} {
		t.Run(c.name, func(t *testing.T) {
			gate := fence.NewGate(nil, nil)
			if err := gate.Claim(t.Context(), []fence.Stamp{stamp(50, "w")}); err != nil {
				t.Fatal(err)
			}
			ran := false
			srv, _ := serve(t, httpfence.Middleware(gate)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran = true })))
			headers := map[string]string{partition: partition + "17\r\n", owner: owner + "w\r\n", token: token + "50\r\n"}
			switch {
			case strings.HasPrefix(c.headers, partition):
				headers[partition] = strings.TrimPrefix(c.headers, "Leasehold-Partition: ")
				if headers[partition] != "" {
					headers[partition] = c.headers
				}
			case strings.HasPrefix(c.headers, owner):
				headers[owner] = strings.TrimPrefix(c.headers, "Leasehold-Owner: ")
				if headers[owner] != "" {
					headers[owner] = c.headers
				}
			default:
				headers[token] = c.headers
			}
			resp := raw(t, srv.Listener.Addr().String(), "PUT /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nLeasehold-Keyspace: orders\r\n"+
				headers[partition]+headers[owner]+headers[token]+"Content-Length: 0\r\n\r\n")
			body := resp.body
			if resp.StatusCode != c.status || resp.Header.Get(httpfence.HeaderRefused) != c.reason {
				t.Fatalf("status %d, reason %q, want %d and %q; body %s", resp.StatusCode, resp.Header.Get(httpfence.HeaderRefused), c.status, c.reason, body)
			}
			if ran != (c.status == 200) {
				t.Errorf("handler ran: %v", ran)
			}
			plain := strings.ReplaceAll(body, `\"`, `"`)
			if !strings.Contains(plain, c.mentions) || len(body) > 1000 {
				t.Errorf("body of %d bytes does not mention %s: %.300s", len(body), c.mentions, body)
			}
			if c.reason != "" && (resp.Header.Get("Content-Type") != "application/problem+json" || !json.Valid([]byte(body))) {
				t.Errorf("not a problem document: %s %s", resp.Header.Get("Content-Type"), body)
			}
			want := fence.Mark{Token: 50, Owner: "w"}
			if c.name == "the highest" {
				want.Token = fence.MaxToken
			}
			if m := gate.Seen(stamp(1, "w").Key()); m != want {
				t.Errorf("mark %+v afterwards, want %+v", m, want)
			}
		})
	}
}

// HTTP/2 and other servers hand over values untrimmed.
func TestUntrimmedValueIsRefused(t *testing.T) {
	for _, v := range []string{"12 ", " 12", "12\t", "12\r\n13"} {
		h := http.Header{}
		if err := httpfence.SetStamp(h, stamp(12, "w")); err != nil {
			t.Fatal(err)
		}
		h[httpfence.HeaderToken] = []string{v}
		_, err := httpfence.ParseStamp(h)
		var he *httpfence.HeaderError
		if !errors.As(err, &he) || he.Header != httpfence.HeaderToken || !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("%q: got %v, want a HeaderError", v, err)
		}
	}
}

// Whatever a stamp holds arrives as it was, through a real connection.
func TestStampArrivesAsSent(t *testing.T) {
	var got fence.Stamp
	srv, c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if got, err = httpfence.ParseStamp(r.Header); err != nil {
			http.Error(w, err.Error(), 500)
		}
	}))
	text := func() *rapid.Generator[string] {
		return rapid.StringN(1, 60, 255).Filter(func(s string) bool { return !strings.Contains(s, "\x00") })
	}
	rapid.Check(t, func(t *rapid.T) {
		s := fence.Stamp{
			Keyspace:  text().Draw(t, "keyspace"),
			Partition: rapid.Uint32().Draw(t, "partition"),
			Token:     fence.Token(rapid.Uint64Range(1, uint64(fence.MaxToken)).Draw(t, "token")),
			Owner:     text().Draw(t, "owner"),
		}
		if rapid.Bool().Draw(t, "named") {
			s.Resource = text().Draw(t, "resource")
		}
		req, err := http.NewRequestWithContext(with(s), "PUT", srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || got != s {
			t.Fatalf("sent %+v, arrived %+v (%s)", s, got, body)
		}
	})
}

func TestSetStampRefusesWhatTheServerWould(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, s := range []fence.Stamp{
		{},
		{Keyspace: long, Token: 1, Owner: "a"},
		{Keyspace: "k", Token: 1, Owner: long},
		{Keyspace: "k", Token: 1, Owner: "a\x00"},
		{Keyspace: "k\xff", Token: 1, Owner: "a"},
		{Keyspace: "k", Token: fence.MaxToken + 1, Owner: "a"},
	} {
		h := http.Header{}
		if err := httpfence.SetStamp(h, s); !errors.Is(err, fence.ErrInvalid) || len(h) > 0 || len(err.Error()) > 250 {
			t.Errorf("%+v: got %v and headers %v", s, err, h)
		}
	}
}

// Every set of headers that is accepted is the one that SetStamp writes, up to
// needless escapes: no stamp has two spellings of its numbers.
func FuzzParseStamp(f *testing.F) {
	f.Add("orders", "17", "34", "w4", "")
	f.Add("a%20b", "0", "9007199254740991", "w%C3%B6", "led%25ger")
	f.Fuzz(func(t *testing.T, keyspace, partition, token, owner, resource string) {
		h := http.Header{}
		h.Set(httpfence.HeaderKeyspace, keyspace)
		h.Set(httpfence.HeaderPartition, partition)
		h.Set(httpfence.HeaderToken, token)
		h.Set(httpfence.HeaderOwner, owner)
		if resource != "" {
			h.Set(httpfence.HeaderResource, resource)
		}
		s, err := httpfence.ParseStamp(h)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalid) {
				t.Fatalf("got %v", err)
			}
			return
		}
		again := http.Header{}
		if err := httpfence.SetStamp(again, s); err != nil {
			t.Fatalf("accepted %+v, which may not be sent: %v", s, err)
		}
		if again.Get(httpfence.HeaderToken) != token || again.Get(httpfence.HeaderPartition) != partition {
			t.Fatalf("%q and %q were read as %v", token, partition, s)
		}
		if back, err := httpfence.ParseStamp(again); err != nil || back != s {
			t.Fatalf("%+v came back as %+v, %v", s, back, err)
		}
	})
}

func BenchmarkMiddleware(b *testing.B) {
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, h := range map[string]http.Handler{"bare": handler, "guarded": httpfence.Middleware(fence.NewGate(nil, nil))(handler)} {
		b.Run(name, func(b *testing.B) {
			r := httptest.NewRequest("PUT", "/x", nil)
			if err := httpfence.SetStamp(r.Header, stamp(5, "w")); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != 200 {
					b.Fatal(fmt.Sprint(w.Code))
				}
			}
		})
	}
}
