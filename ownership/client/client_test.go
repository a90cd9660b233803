package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func dial(t *testing.T, servers ...string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), client.Config{Servers: strings.Join(servers, ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// by says which server answered.
func by(t *testing.T, c *client.Client) string {
	t.Helper()
	r, err := c.Keyspaces().ListKeyspaces(t.Context(), &leaseholdv1.ListKeyspacesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(r.GetItems()[0].GetName(), "by ")
}

func TestPrefersTheLeader(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	b.leads("b", b.addr)
	a.follows(b, false)
	if got := by(t, dial(t, a.addr, b.addr, deadAddr(t))); got != "b" {
		t.Errorf("answered by %s, want the leader b", got)
	}
}

func TestFindsALeaderThatIsNotConfigured(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	a.leads("b", b.addr)
	b.leads("b", b.addr)
	c := dial(t, a.addr)
	if got := by(t, c); got != "b" {
		t.Errorf("answered by %s, want b, whom a named", got)
	}
	order, err := c.Servers(t.Context())
	if err != nil || len(order) != 2 || order[0] != b.addr || order[1] != a.addr {
		t.Errorf("order %v, %v; want leader first", order, err)
	}
}

func TestWorksThroughAFollowerWhenTheLeaderIsOutOfReach(t *testing.T) {
	a := newPeer(t, "a")
	a.leads("b", deadAddr(t))
	if got := by(t, dial(t, a.addr)); got != "a" {
		t.Errorf("answered by %s", got)
	}
}

func TestAStoppedServerDelaysNobodyForLong(t *testing.T) {
	a := newPeer(t, "a")
	a.leads("b", "")
	start := time.Now()
	if got := by(t, dial(t, silentAddr(t), a.addr)); got != "a" {
		t.Errorf("answered by %s", got)
	}
	if d := time.Since(start); d > 1900*time.Millisecond { // a probe of it takes 2 s
		t.Errorf("took %v", d)
	}
}

func TestServersPutsTheSilentLast(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	dead := deadAddr(t)
	b.leads("b", b.addr)
	a.follows(b, true)
	order, err := dial(t, dead, a.addr, b.addr).Servers(t.Context())
	if err != nil || len(order) != 3 || order[0] != b.addr {
		t.Errorf("order %v, %v", order, err)
	}
}

func TestUnreachableNamesEachServer(t *testing.T) {
	one, two := deadAddr(t), deadAddr(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.Dial(ctx, client.Config{Servers: one + "," + two})
	var u *client.UnreachableError
	if !errors.As(err, &u) || len(u.Servers) != 2 {
		t.Fatalf("got %v, want an *UnreachableError", err)
	}
	for _, want := range []string{one, two, "connection refused"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("code %v", status.Code(err))
	}
}

func TestPatienceEndsBeforeTheTimeout(t *testing.T) {
	start := time.Now()
	_, err := client.Dial(t.Context(), client.Config{Servers: deadAddr(t), Patience: 100 * time.Millisecond})
	var u *client.UnreachableError
	if !errors.As(err, &u) {
		t.Fatalf("got %v", err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestWaitsForAServerThatStartsLater(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused, started := make(chan struct{}, 1), make(chan struct{})
	dialer := func(ctx context.Context, addr string) (net.Conn, error) {
		select {
		case <-started:
			var d net.Dialer
			return d.DialContext(ctx, "tcp", addr)
		default:
		}
		select {
		case refused <- struct{}{}:
		default:
		}
		return nil, syscall.ECONNREFUSED
	}
	got := make(chan error, 1)
	go func() {
		c, err := client.Dial(t.Context(), client.Config{Servers: l.Addr().String(), Dialer: dialer})
		if err == nil {
			c.Close()
		}
		got <- err
	}()
	<-refused
	servePeer(t, "a", l)
	close(started)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// A change refused for want of a leader was not done: it waits the election
// out.
func TestChangeWaitsOutAnElection(t *testing.T) {
	a := newPeer(t, "a")
	tries := 0
	a.create = func(context.Context) (*leaseholdv1.Keyspace, error) {
		if tries++; tries < 4 {
			return nil, refuse(leaseholdv1.ReasonNoLeader, "")
		}
		return &leaseholdv1.Keyspace{Name: "orders"}, nil
	}
	k, err := dial(t, a.addr).Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{Name: "orders"})
	if err != nil || k.GetName() != "orders" {
		t.Fatalf("got %v, %v", k, err)
	}
}

func TestNoLeaderIsToldWhenTimeIsUp(t *testing.T) {
	a := newPeer(t, "a")
	a.create = func(context.Context) (*leaseholdv1.Keyspace, error) {
		return nil, refuse(leaseholdv1.ReasonNoLeader, "")
	}
	err := timeUp(t, dial(t, a.addr), 300*time.Millisecond)
	if client.Detail(err).GetReason() != leaseholdv1.ReasonNoLeader {
		t.Errorf("got %v, want the server's reason", err)
	}
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("got %#v", err)
	}
}

// timeUp makes a change that nobody carries out, until its time is up. When that
// is in the middle of a try, nothing is known, rightly: then it begins anew.
func timeUp(t *testing.T, c *client.Client, limit time.Duration, begin ...func()) (err error) {
	t.Helper()
	for range 10 {
		for _, f := range begin {
			f()
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err = c.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{})
		cancel()
		if !errors.Is(err, client.ErrUnknownOutcome) {
			break
		}
	}
	return err
}

func TestFollowsNotLeader(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	a.leads("a", a.addr)
	a.create = func(context.Context) (*leaseholdv1.Keyspace, error) {
		return nil, refuse(leaseholdv1.ReasonNotLeader, b.addr)
	}
	if _, err := dial(t, a.addr).Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{}); err != nil {
		t.Fatal(err)
	}
	if a.count("create") != 1 || b.count("create") != 1 {
		t.Errorf("a was asked %d times, b %d", a.count("create"), b.count("create"))
	}
}

// Two servers that each name the other must not keep the client spinning.
func TestPingPongBetweenTwoServersPauses(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	a.create = func(context.Context) (*leaseholdv1.Keyspace, error) {
		return nil, refuse(leaseholdv1.ReasonNotLeader, b.addr)
	}
	b.create = func(context.Context) (*leaseholdv1.Keyspace, error) {
		return nil, refuse(leaseholdv1.ReasonNotLeader, a.addr)
	}
	c := dial(t, a.addr)
	before := 0
	calls := func() int { return a.count("create") + b.count("create") }
	err := timeUp(t, c, 400*time.Millisecond, func() { before = calls() })
	if client.Detail(err).GetReason() != leaseholdv1.ReasonNotLeader {
		t.Errorf("got %v", err)
	}
	if n := calls() - before; n > 40 {
		t.Errorf("%d calls in 400 ms", n)
	}
}

func TestConsideredAnswersAreNotRepeated(t *testing.T) {
	a := newPeer(t, "a")
	a.create = func(context.Context) (*leaseholdv1.Keyspace, error) {
		return nil, leaseholdv1.StatusError(codes.AlreadyExists, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonExists, Field: "name", Value: "orders"})
	}
	_, err := dial(t, a.addr).Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{})
	if d := client.Detail(err); d.GetReason() != "exists" || d.GetField() != "name" || a.count("create") != 1 {
		t.Errorf("got %v after %d calls", err, a.count("create"))
	}
}

// The rule that must never break: a change that was sent and not answered is
// not sent again.
func TestChangeWithoutAnswerIsNeverRepeated(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	a.leads("a", a.addr)
	b.follows(a, true)
	got := make(chan struct{})
	a.create = func(ctx context.Context) (*leaseholdv1.Keyspace, error) {
		close(got)
		<-ctx.Done() // the server dies with the call in hand
		return nil, ctx.Err()
	}
	c := dial(t, a.addr, b.addr)
	go func() {
		<-got
		a.srv.Stop()
	}()
	_, err := c.Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{})
	var u *client.UnknownOutcomeError
	if !errors.Is(err, client.ErrUnknownOutcome) || !errors.As(err, &u) || !strings.HasSuffix(u.Method, "/CreateKeyspace") {
		t.Fatalf("got %v, want ErrUnknownOutcome", err)
	}
	if n := b.count("create"); n != 0 {
		t.Errorf("the change was sent %d times to another server", n)
	}
	if got := by(t, c); got != "b" {
		t.Errorf("the next call was answered by %s, want b", got)
	}
}

func TestChangeOutOfTimeIsUnknown(t *testing.T) {
	a := newPeer(t, "a")
	a.create = func(ctx context.Context) (*leaseholdv1.Keyspace, error) { <-ctx.Done(); return nil, ctx.Err() }
	c := dial(t, a.addr)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := c.Keyspaces().CreateKeyspace(ctx, &leaseholdv1.CreateKeyspaceRequest{})
	if !errors.Is(err, client.ErrUnknownOutcome) || a.count("create") != 1 {
		t.Errorf("got %v after %d calls", err, a.count("create"))
	}
}

// A change that never left the process goes to the next server.
func TestChangeThatWasNotSentGoesElsewhere(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	a.leads("a", a.addr)
	b.follows(a, true)
	c := dial(t, a.addr, b.addr)
	if got := by(t, c); got != "a" {
		t.Fatalf("answered by %s", got)
	}
	a.srv.Stop()
	b.leads("b", b.addr)
	// A read notices the death; the change that follows must find b.
	if got := by(t, c); got != "b" {
		t.Errorf("read answered by %s", got)
	}
	if _, err := c.Keyspaces().CreateKeyspace(t.Context(), &leaseholdv1.CreateKeyspaceRequest{}); err != nil {
		t.Error(err)
	}
	if a.count("create") != 0 || b.count("create") != 1 {
		t.Errorf("a %d, b %d", a.count("create"), b.count("create"))
	}
}

func TestReadFailsOverFromABrokenServer(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	a.leads("a", a.addr)
	b.follows(a, true)
	a.list = func(context.Context) (*leaseholdv1.ListKeyspacesResponse, error) {
		a.leads("", "")
		b.leads("b", b.addr)
		return nil, leaseholdv1.StatusError(codes.Unavailable, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonStoreFailed})
	}
	if got := by(t, dial(t, a.addr, b.addr)); got != "b" {
		t.Errorf("answered by %s", got)
	}
}

func TestWatchGoesElsewhereAfterABreak(t *testing.T) {
	a, b := newPeer(t, "a"), newPeer(t, "b")
	a.leads("a", a.addr)
	b.follows(a, true)
	c := dial(t, a.addr, b.addr)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := c.Events().WatchEvents(ctx, &leaseholdv1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := s.Recv(); err != nil || m.GetRevision() != 7 {
		t.Fatal(m, err)
	}
	a.srv.Stop()
	b.leads("b", b.addr)
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Fatalf("broken watch: %v", err)
	}
	s, err = c.Events().WatchEvents(ctx, &leaseholdv1.WatchEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil || b.count("watch") != 1 {
		t.Errorf("%v, b was asked %d times", err, b.count("watch"))
	}
}

func TestOpenIsTheCallers(t *testing.T) {
	a := newPeer(t, "a")
	c := dial(t, a.addr)
	cc, err := c.Open(a.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	c.Close()
	if _, err := leaseholdv1.NewClusterServiceClient(cc).GetStatus(t.Context(), &leaseholdv1.GetStatusRequest{}); err != nil {
		t.Errorf("closed with the client: %v", err)
	}
	if _, err := c.Cluster().GetStatus(t.Context(), &leaseholdv1.GetStatusRequest{}); !errors.Is(err, client.ErrClosed) {
		t.Errorf("call on a closed client: %v", err)
	}
	if _, err := c.Open("0.0.0.0:"); err == nil {
		t.Error("an address without port was accepted")
	}
}

// O-34: each form works, or is refused with one that does.
func TestServerAddressForms(t *testing.T) {
	for _, c := range []struct{ in, want, err string }{
		{"10.0.0.1:7400", "10.0.0.1:7400", ""},
		{" 10.0.0.1:7400 , 10.0.0.2 ", "10.0.0.1:7400 10.0.0.2:7400", ""},
		{"a:7400,a:7400", "a:7400", ""},
		{"[::1]:7400", "[::1]:7400", ""},
		{"[::1]", "[::1]:7400", ""},
		{"[fe80::1%lo]:7400", "[fe80::1%lo]:7400", ""},
		{"localhost:07400", "localhost:7400", ""},
		{"::1", "", "[::1]:7400"},
		{"fd00::1,10.0.0.1", "", "[fd00::1]:7400"},
		{"", "", "127.0.0.1:7400"},
		{"a,,b", "", "empty"},
		{"a:7400,", "", "empty"},
		{":7400", "", "no host"},
		{"a:0", "", "between 1 and 65535"},
		{"a:70000", "", "between 1 and 65535"},
		{"a:http", "", "between 1 and 65535"},
		{"a:", "", "between 1 and 65535"},
		{"http://a:7480", "", "URL"},
		{"a b:7400", "", "character"},
		{"a:1:2", "", "host:port"},
	} {
		got, err := client.ParseServers(c.in)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: got %v, %v; want an error that says %q", c.in, got, err, c.err)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q: got %v, %v; want %s", c.in, got, err, c.want)
		}
	}
}
