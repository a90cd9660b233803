package httpfence_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

func guardAt(t *testing.T, url string, c *http.Client) *httpfence.Guard {
	t.Helper()
	g, err := httpfence.NewGuard(url, plain(c))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The claim closes the gap before the first write: the zombie bounces though
// the new owner has written nothing.
func TestClaimComesBeforeTheFirstWrite(t *testing.T) {
	gate := fence.NewGate(nil, nil)
	mux := http.NewServeMux()
	mux.Handle("/claim", httpfence.ClaimHandler(gate))
	mux.Handle("/write", httpfence.Middleware(gate)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	srv, c := serve(t, mux)
	g := guardAt(t, srv.URL+"/claim", c)
	if err := g.Claim(t.Context(), []fence.Stamp{stamp(33, "w2")}); err != nil {
		t.Fatal(err)
	}
	if _, err := send(t, c, "PUT", srv.URL+"/write", stamp(33, "w2")); err != nil {
		t.Fatal(err)
	}
	if err := g.Claim(t.Context(), []fence.Stamp{stamp(34, "w4")}); err != nil {
		t.Fatal(err)
	}
	if _, err := send(t, c, "PUT", srv.URL+"/write", stamp(33, "w2")); !errors.Is(err, fence.ErrStale) {
		t.Errorf("zombie: got %v, want ErrStale", err)
	}
}

func TestClaimErrorComesBackWhole(t *testing.T) {
	mem := fence.NewMemory(nil)
	srv, c := serve(t, httpfence.ClaimHandler(mem))
	g := guardAt(t, srv.URL, c)
	var batch, high []fence.Stamp
	for p := range uint32(2*httpfence.MaxClaimStamps + 7) {
		s := fence.Stamp{Keyspace: "k", Partition: p, Token: 10, Owner: "wörker <1>"}
		if p%1000 == 3 {
			s.Resource = fmt.Sprintf("Kasse „%d“", p)
			high = append(high, fence.Stamp{Keyspace: "x", Token: 20, Owner: "neu", Resource: s.Resource})
		}
		batch = append(batch, s)
	}
	if err := g.Claim(t.Context(), high); err != nil {
		t.Fatal(err)
	}
	got := g.Claim(t.Context(), batch)
	want := mem.Claim(t.Context(), batch)
	var a, b *fence.ClaimError
	if !errors.As(got, &a) || !errors.As(want, &b) || len(a.Refused) != len(high) || len(a.Refused) != len(b.Refused) {
		t.Fatalf("got %v, want %v", got, want)
	}
	order := func(x, y *fence.StaleError) int {
		return cmp.Or(x.Key().Compare(y.Key()), cmp.Compare(x.Token, y.Token))
	}
	slices.SortFunc(a.Refused, order)
	slices.SortFunc(b.Refused, order)
	for i := range a.Refused {
		if *a.Refused[i] != *b.Refused[i] {
			t.Errorf("refusal %d: got %+v, want %+v", i, a.Refused[i], b.Refused[i])
		}
	}
	if err := g.Claim(t.Context(), nil); err != nil {
		t.Errorf("nothing to claim: %v", err)
	}
	if err := g.Claim(t.Context(), []fence.Stamp{stamp(0, "a")}); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("token 0: got %v", err)
	}
}

func TestBadClaimsChangeNothing(t *testing.T) {
	mem := fence.NewMemory(nil)
	srv, c := serve(t, httpfence.ClaimHandler(mem))
	one := `{"keyspace":"orders","partition":17,"token":"50","owner":"w"}`
	for _, b := range []struct {
		name, body string
		status     int
		mentions   string
	}{
		{"empty body", ``, 400, "EOF"},
		{"no JSON", `hello`, 400, "invalid character"},
		{"no stamps", `{}`, 400, "1 to 5000"},
		{"null", `null`, 400, "1 to 5000"},
		{"unknown field", `{"stamps":[` + one + `],"force":true}`, 400, "force"},
		{"unknown field of a stamp", `{"stamps":[{"keyspace":"orders","partition":17,"token":"50","owner":"w","ttl":1}]}`, 400, "ttl"},
		{"two documents", `{"stamps":[` + one + `]}{"stamps":[` + one + `]}`, 400, "follows"},
		{"token as a number", `{"stamps":[{"keyspace":"orders","partition":17,"token":50,"owner":"w"}]}`, 400, "string"},
		{"token 2^53+1", `{"stamps":[` + one + `,{"keyspace":"orders","partition":17,"token":"9007199254740993","owner":"w"}]}`, 400, "stamps[1]"},
		{"token 007", `{"stamps":[{"keyspace":"orders","partition":17,"token":"007","owner":"w"}]}`, 400, "leading zero"},
		{"token empty", `{"stamps":[{"keyspace":"orders","partition":17,"token":"","owner":"w"}]}`, 400, "token"},
		{"token missing", `{"stamps":[{"keyspace":"orders","partition":17,"owner":"w"}]}`, 400, "token"},
		{"token 0", `{"stamps":[{"keyspace":"orders","partition":17,"token":"0","owner":"w"}]}`, 400, "never issued"},
		{"partition missing", `{"stamps":[{"keyspace":"orders","token":"50","owner":"w"}]}`, 400, "partition is missing"},
		{"partition null", `{"stamps":[{"keyspace":"orders","partition":null,"token":"50","owner":"w"}]}`, 400, "partition is missing"},
		{"partition -1", `{"stamps":[{"keyspace":"orders","partition":-1,"token":"50","owner":"w"}]}`, 400, "partition"},
		{"partition 1e3", `{"stamps":[{"keyspace":"orders","partition":1e3,"token":"50","owner":"w"}]}`, 400, "partition"},
		{"owner empty", `{"stamps":[{"keyspace":"orders","partition":17,"token":"50","owner":""}]}`, 400, "owner"},
		{"not UTF-8", "{\"stamps\":[{\"keyspace\":\"orders\",\"partition\":17,\"token\":\"50\",\"owner\":\"w\xff\"}]}", 400, "UTF-8"},
		{"resource of 1 MiB", `{"stamps":[{"keyspace":"orders","partition":17,"token":"50","owner":"w","resource":"` + strings.Repeat("x", 1<<20) + `"}]}`, 400, "at most 255"},
		{"too many", `{"stamps":[` + strings.Repeat(one+",", httpfence.MaxClaimStamps) + one + `]}`, 413, "at most 5000"},
		{"too long", `{"stamps":[` + strings.Repeat(" ", httpfence.MaxClaimBytes) + one + `]}`, 413, "25165824 bytes"},
	} {
		resp, err := plain(c).Post(srv.URL, "application/json", strings.NewReader(b.body))
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != b.status || !strings.Contains(string(raw), b.mentions) || len(raw) > 1000 {
			t.Errorf("%s: status %d, want %d and mention of %q: %.300s", b.name, resp.StatusCode, b.status, b.mentions, raw)
		}
	}
	if resp, err := plain(c).Get(srv.URL); err != nil || resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
		t.Errorf("GET: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	if resp, err := plain(c).Post(srv.URL, "text/plain", strings.NewReader(`{"stamps":[`+one+`]}`)); err != nil || resp.StatusCode != 415 {
		t.Errorf("text: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
	if m := mem.Seen(stamp(1, "w").Key()); m != (fence.Mark{}) {
		t.Errorf("a bad claim left the mark %+v", m)
	}
}

// Only an answer that accounts for every stamp is a claim.
func TestGuardDoesNotBelieveStrangers(t *testing.T) {
	answer, status := "", 200
	srv, c := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	g := guardAt(t, srv.URL+"/?key=secret", c)
	for _, a := range []struct {
		status int
		body   string
	}{
		{200, "<html>please log in</html>"}, {200, ""}, {200, "{}"}, {200, `{"claimed":0,"refused":[]}`}, {200, `{"claimed":2,"refused":[]}`},
		{204, ""}, {302, ""}, {404, ""}, {409, "{}"}, {500, ""}, {502, "bad gateway"},
		{409, `{"claimed":0,"refused":[{"keyspace":"other","partition":1,"token":"5","owner":"a","current_token":"6","current_owner":"b","reason":"stale"}]}`},
		{409, `{"claimed":0,"refused":[{"keyspace":"orders","partition":17,"token":"5","owner":"a","current_token":"6.0","current_owner":"b","reason":"stale"}]}`},
		{409, `{"claimed":0,"refused":[{"keyspace":"orders","partition":17,"token":"5","owner":"a","current_token":"6","current_owner":"b","reason":"because"}]}`},
	} {
		status, answer = a.status, a.body
		err := g.Claim(t.Context(), []fence.Stamp{stamp(5, "a")})
		if err == nil || errors.Is(err, fence.ErrStale) || !strings.Contains(err.Error(), "unknown") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%d %s: got %v, want an unknown outcome", a.status, a.body, err)
		}
	}
	if err := guardAt(t, srv.URL+"/away", c).Claim(t.Context(), []fence.Stamp{stamp(5, "a")}); !errors.Is(err, httpfence.ErrRedirected) {
		t.Errorf("redirect to another host: got %v", err)
	}
	for _, bad := range []string{"", "claim", "ftp://x/claim", "http://", "://"} {
		if _, err := httpfence.NewGuard(bad, nil); err == nil {
			t.Errorf("URL %q was taken", bad)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Claim(ctx, []fence.Stamp{stamp(5, "a")}); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx over: got %v", err)
	}
}

func TestClaimHandlerWithItsGuardDown(t *testing.T) {
	srv, c := serve(t, httpfence.ClaimHandler(down{errors.New("no route to 10.0.0.9")}, quiet))
	err := guardAt(t, srv.URL, c).Claim(t.Context(), []fence.Stamp{stamp(5, "a")})
	var refused *httpfence.RefusedError
	if !errors.As(err, &refused) || refused.Status != 503 || strings.Contains(err.Error(), "10.0.0.9") {
		t.Errorf("got %v, want 503 without the inner reason", err)
	}
}
