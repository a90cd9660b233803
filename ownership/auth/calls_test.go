package auth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// waiting opens a stream and a call that wait on the server, and returns a function
// that tells how both ended.
func (w *world) waiting(ctx context.Context, client grpc_testing.TestServiceClient) func() [2]error {
	w.t.Helper()
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{Payload: &grpc_testing.Payload{Body: []byte("wait")}}); err != nil {
		w.t.Fatal(err)
	}
	unary := make(chan error, 1)
	go func() {
		_, err := client.UnaryCall(ctx, payload("wait"))
		unary <- err
	}()
	<-w.svc.entered
	<-w.svc.entered
	return func() [2]error {
		_, err := stream.Recv()
		return [2]error{err, <-unary}
	}
}

func TestRevokedEndsWhatIsOpen(t *testing.T) {
	w := newWorld(t)
	token := w.credential(id1, "batch", access.Worker, time.Time{})
	other := w.credential(id2, "other", access.Worker, time.Time{})
	client := w.dial(w.anonymous())
	ended := w.waiting(bearer(token), client)
	survivor, cancel := context.WithCancel(bearer(other))
	survives := w.waiting(survivor, client)
	w.revoke(id1)
	for _, err := range ended() {
		if pb.ReasonOf(err) != pb.ReasonUnauthenticated || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("it ends with %v", err)
		}
	}
	cancel()
	for _, err := range survives() {
		if status.Code(err) != codes.Canceled {
			t.Errorf("somebody else's ends with %v", err)
		}
	}
}

// What a browser has open over HTTP, which is no call, ends as well.
func TestRevokedEndsWhatIsOpenOverHTTP(t *testing.T) {
	w := newWorld(t)
	token := w.credential(id1, "eve", access.Reader, time.Time{})
	request := func() *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/console/", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+token)
		return r
	}
	entered, ended := make(chan struct{}), make(chan error, 1)
	go w.auth.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		within(r.Context(), 10*time.Second)
		ended <- context.Cause(r.Context())
	})).ServeHTTP(httptest.NewRecorder(), request())
	<-entered
	w.revoke(id1)
	if err := <-ended; !errors.Is(err, errGone) {
		t.Errorf("it ends with %v", err)
	}
	got := httptest.NewRecorder()
	w.auth.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it begins anew") })).ServeHTTP(got, request())
	if got.Code != http.StatusUnauthorized {
		t.Errorf("anew: %d", got.Code)
	}
}

func TestRevokedCertificateEndsWhatIsOpen(t *testing.T) {
	w := newWorld(t)
	client := w.dial(w.certificate(access.Worker, "w1"))
	ended := w.waiting(context.Background(), client)
	var serial string
	w.auth.calls.mu.Lock()
	for proof := range w.auth.calls.byProof {
		serial = strings.TrimPrefix(proof, "certificate/")
	}
	w.auth.calls.mu.Unlock()
	w.auth.RevokedCertificate(serial)
	for _, err := range ended() {
		if pb.ReasonOf(err) != pb.ReasonUnauthenticated || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("it ends with %v", err)
		}
	}
}

// within waits for the end of a context, and no longer than that.
func within(ctx context.Context, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// One timer ends what runs out, and nothing else; without calls it does not run.
func TestExpiryEndsWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Config{})
		a.cfg.Lookup = func(string) (access.Credential, bool) { return access.Credential{ID: id1}, true }
		at := func(d time.Duration) access.Identity {
			id := access.Identity{Source: access.Bearer, Credential: id1, Role: access.Worker, Expires: time.Now().Add(d)}
			if d == 0 {
				id.Expires = time.Time{}
			}
			return id
		}
		began := time.Now()
		ctx := func(id access.Identity) (context.Context, func()) { return a.calls.open(context.Background(), id) }
		late, doneLate := ctx(at(90 * time.Minute))
		never, doneNever := ctx(at(0))
		soon, doneSoon := ctx(at(time.Second))
		gone, doneGone := ctx(at(500 * time.Millisecond))
		doneGone()
		if !errors.Is(context.Cause(gone), context.Canceled) {
			t.Errorf("a call that has ended: %v", context.Cause(gone))
		}
		within(soon, time.Minute)
		if d := time.Since(began); d != time.Second || !errors.Is(context.Cause(soon), errOld) {
			t.Errorf("after %v: %v", d, context.Cause(soon))
		}
		doneSoon()
		within(late, 2*time.Hour)
		if d := time.Since(began); d != 90*time.Minute {
			t.Errorf("after %v: %v", d, context.Cause(late))
		}
		doneLate()
		if never.Err() != nil {
			t.Errorf("what never runs out ends with %v", context.Cause(never))
		}
		doneNever()
		if a.calls.timer.Stop() || len(a.calls.due) != 0 || len(a.calls.byProof) != 0 {
			t.Error("something is left when nothing is open")
		}
	})
}

// A server that learns of a revocation with a snapshot is told of no event.
func TestRevocationIsNoticedWithoutBeingTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		a := New(Config{Lookup: func(string) (access.Credential, bool) { return access.Credential{ID: id1}, !gone.Load() }})
		ctx, done := a.calls.open(context.Background(), access.Identity{Source: access.Bearer, Credential: id1, Role: access.Worker})
		defer done()
		time.Sleep(10 * lookEvery)
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		gone.Store(true)
		began := time.Now()
		within(ctx, 2*lookEvery)
		if d := time.Since(began); d > lookEvery || !errors.Is(context.Cause(ctx), errGone) {
			t.Errorf("after %v: %v", d, context.Cause(ctx))
		}
	})
}

func TestFailedLoginsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := bytes.Repeat([]byte{7}, access.SecretLen)
		c := access.Credential{ID: id1, Name: "batch", Hash: access.HashSecret(secret), Role: access.Worker, Scope: access.Everywhere()}
		a := New(Config{Lookup: func(id string) (access.Credential, bool) { return c, id == id1 }, Logger: slog.New(slog.DiscardHandler)})
		wrong, right := access.Token(id1, make([]byte, access.SecretLen)), access.Token(id1, secret)
		reasons := map[string]int{}
		try := func(token, from string) string {
			_, err := a.byToken(t.Context(), token, from)
			return pb.ReasonOf(err)
		}
		for range 100 {
			reasons[try(wrong, "192.0.2.7:1")]++
		}
		if reasons[pb.ReasonUnauthenticated] != failuresAtOnce || reasons[pb.ReasonLimited] != 100-failuresAtOnce {
			t.Errorf("a hundred at once: %v", reasons)
		}
		if got := try(wrong, "192.0.2.8:1"); got != pb.ReasonUnauthenticated {
			t.Errorf("from another address: %s", got)
		}
		for _, from := range []string{"192.0.2.7:1", "192.0.2.8:1"} {
			if got := try(right, from); got != "" {
				t.Errorf("the right secret, from %s: %s", from, got)
			}
		}
		time.Sleep(time.Second)
		clear(reasons)
		for range 100 {
			reasons[try(wrong, "192.0.2.7:1")]++
		}
		if reasons[pb.ReasonUnauthenticated] != failuresPerSecond {
			t.Errorf("after a second: %v", reasons)
		}
	})
}

// Somebody who makes up a name for each login does not write the log, and the log says
// how many there were.
func TestFailedLoginsAreNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		a := New(Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for i := range 1000 {
			if _, err := a.Login(t.Context(), fmt.Sprintf("name-%d", i), "x", "192.0.2.7:1"); pb.ReasonOf(err) != pb.ReasonUnauthenticated {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), "\n"); n < 1 || n > linesAtOnce {
			t.Errorf("%d lines about 1000 failed logins", n)
		}
		time.Sleep(time.Second)
		log.Reset()
		_, _ = a.Login(t.Context(), "one-more", "x", "192.0.2.7:1")
		if want := fmt.Sprintf("more_since_last_line=%d", 1000-linesAtOnce); !strings.Contains(log.String(), want) {
			t.Errorf("a line a second later, %q, want %s", log.String(), want)
		}
	})
}

func TestTheLimiterIsBounded(t *testing.T) {
	l := newLimiter(time.Now)
	for i := range 3 * maxFailing {
		l.allow(strings.Repeat("x", 1000), fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&255, i&255))
	}
	if len(l.byWhom) != maxFailing || l.recent.Len() != maxFailing {
		t.Errorf("%d are counted, %d in order", len(l.byWhom), l.recent.Len())
	}
	for from, want := range map[string]string{"192.0.2.7:5": "192.0.2.7", "[2001:db8::1]:5": "2001:db8::/64", "[::ffff:192.0.2.7]:5": "192.0.2.7", "pipe": ""} {
		if got := network(from); got != want {
			t.Errorf("network(%s) = %q, want %q", from, got, want)
		}
	}
}

// Names and tokens come out of headers and messages of up to 64 KiB: of what strangers
// have sent nothing more is kept than what is counted by.
func TestTheLimiterKeepsNothingOfRequests(t *testing.T) {
	size := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for what, cut := range map[string]func(string) string{
		"names that are too long":          func(s string) string { return s },
		"names beside a long password":     func(s string) string { return s[:12] },
		"names as long as names can be":    func(s string) string { return s[:maxWho] },
		"names that are a little too long": func(s string) string { return s[:maxWho+1] },
	} {
		l := newLimiter(time.Now)
		before := size()
		for i := range maxFailing {
			l.allow(cut(fmt.Sprintf("%012d", i)+strings.Repeat("x", 16<<10)), "192.0.2.7:1")
		}
		if kept := size() - before; kept > 8<<20 || len(l.byWhom) != maxFailing {
			t.Errorf("%s: %d MiB are kept of %d failures, want 1", what, kept>>20, len(l.byWhom))
		}
	}
}

func TestAudit(t *testing.T) {
	w := newWorld(t)
	token := w.credential(id1, "batch", access.Worker, time.Time{})
	client := w.dial(w.anonymous())
	if _, err := client.UnaryCall(bearer(token), payload("p")); err != nil {
		t.Fatal(err)
	}
	_, _ = client.UnaryCall(bearer(token), payload("x"))
	_, _ = client.UnaryCall(context.Background(), payload("p"))
	entries := w.audit.take()
	if len(entries) != 3 {
		t.Fatalf("%+v", entries)
	}
	for i, want := range []struct{ owner, target, outcome string }{
		{"credential/" + id1, "payload=p", OutcomeOK},
		{"credential/" + id1, "payload=x", pb.ReasonDenied},
		{"", "", pb.ReasonUnauthenticated}, // nothing of what nobody says is read
	} {
		e := entries[i]
		if e.Identity.Owner() != want.owner || e.Target != want.target || e.Outcome != want.outcome || e.Method != unaryCall || !strings.HasPrefix(e.From, "127.0.0.1:") || e.Time.IsZero() {
			t.Errorf("%d: %+v", i, e)
		}
	}
	// A call that another server has handed on is in its log already.
	server := w.dial(w.certificate(access.Server, "s2"))
	boss := access.Identity{Source: access.Certificate, Name: "boss", Role: access.Operator, Scope: access.Everywhere()}
	if _, err := server.UnaryCall(metadata.AppendToOutgoingContext(context.Background(), ForwardedKey, "1", FromKey, "192.0.2.7:1", IdentityKey, boss.Encode()), payload("p")); err != nil {
		t.Fatal(err)
	}
	if got := w.audit.take(); len(got) != 0 {
		t.Errorf("twice in the log: %+v", got)
	}
	// Somebody who knocks on and on does not fill it.
	for range 10 * failuresAtOnce {
		_, _ = client.UnaryCall(bearer(token), payload("x"))
	}
	if n := len(w.audit.take()); n == 0 || n > 3*failuresAtOnce {
		t.Errorf("%d entries of one who is denied again and again", n)
	}
}

// No secret that somebody presents is in an error, in the log or in the audit log.
func TestSecretsAreNotTold(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t)
	w.auth.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	token := w.credential(id1, "batch", access.Worker, time.Time{})
	secret := strings.TrimPrefix(token, "lhc_"+id1+"_")
	other := strings.Replace(token, secret[:4], "zzzz", 1)
	var said []string
	client := w.dial(w.anonymous())
	for _, presented := range []string{token, other, token + "=", secret, "lhc_" + secret, strings.Replace(token, id1, id2, 1)} {
		for _, key := range []string{"authorization", "token"} {
			_, err := client.UnaryCall(metadata.AppendToOutgoingContext(context.Background(), key, presented), payload("x"))
			said = append(said, fmt.Sprint(err))
		}
		_, err := w.auth.Login(peer.NewContext(context.Background(), &peer.Peer{Addr: address("192.0.2.7:1")}), "batch", presented+"!", "")
		said = append(said, fmt.Sprint(err))
		_, err = w.auth.Login(context.Background(), presented, "batch", "192.0.2.8:1") // the wrong way round
		said = append(said, fmt.Sprint(err))
	}
	for _, e := range w.audit.take() {
		said = append(said, fmt.Sprintf("%+v", e))
	}
	said = append(said, log.String(), w.log.String())
	for _, s := range said {
		for _, part := range []string{secret, secret[8:], other[20:]} {
			if strings.Contains(s, part) {
				t.Fatalf("a secret is told: %s", s)
			}
		}
	}
	if len(said) < 20 || !strings.Contains(log.String(), "login failed") {
		t.Fatalf("only %d texts were looked at, and of the log %q", len(said), log.String())
	}
}

func BenchmarkUnary(b *testing.B) {
	w := newWorld(b)
	token := w.credential(id1, "batch", access.Worker, time.Now().Add(time.Hour))
	md := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+token))
	for b.Loop() {
		ctx, c, done, err := w.auth.begin(md, unaryCall)
		if err != nil || w.auth.authorize(ctx, c.id, unaryCall, payload("p")) != nil {
			b.Fatal(err)
		}
		done()
	}
}
