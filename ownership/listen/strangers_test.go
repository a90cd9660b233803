package listen

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// let lets a client in whose handshake is done. Each has an address of its own.
func (f *fixture) let(t *testing.T, ca *authority, from string, serial int64) *visitor {
	t.Helper()
	conn := f.dial(from)
	if err := shake(conn, ca.client(serial)); err != nil {
		t.Fatal(err)
	}
	served := <-f.accepted
	t.Cleanup(func() { served.Close() })
	return &visitor{conn, from}
}

type visitor struct {
	conn interface {
		SetReadDeadline(time.Time) error
		Read([]byte) (int, error)
	}
	from string
}

func (v *visitor) ended() bool {
	_ = v.conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := v.conn.Read(make([]byte, 1))
	timeout, ok := err.(interface{ Timeout() bool })
	return err != nil && (!ok || !timeout.Timeout())
}

func TestStrangersHaveTwoMinutes(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server()})
		stranger, certified, proven := f.let(t, ca, "10.0.0.1:1", 0), f.let(t, ca, "10.0.0.1:2", 7), f.let(t, ca, "10.0.0.1:3", 0)
		f.Proven(proven.from)
		f.Proven("10.0.0.9:1") // nobody
		<-time.After(DefaultStrangerTime - time.Second)
		if stranger.ended() {
			t.Error("a stranger was sent away too soon")
		}
		<-time.After(2 * time.Second)
		if !stranger.ended() {
			t.Error("a stranger stays")
		}
		if certified.ended() || proven.ended() {
			t.Error("somebody who is known was sent away")
		}
		f.counts.want(t, 2, map[string]int{"limit strangers": 1})
	})
}

// Whoever fills a listener with connections that say nothing keeps nobody out.
func TestStrangersGiveWay(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server(), Limits: Limits{Connections: 4, PerAddress: 3}})
		certified := f.let(t, ca, "10.0.0.1:1", 7)
		first, second, other := f.let(t, ca, "10.0.0.1:2", 0), f.let(t, ca, "10.0.0.1:3", 0), f.let(t, ca, "10.0.0.2:1", 0)
		if !ended(f.dial("10.0.0.3:1")) {
			t.Error("a stranger of less than a second gave way")
		}
		<-time.After(patience)
		fifth := f.let(t, ca, "10.0.0.3:2", 7)
		if !first.ended() || second.ended() || other.ended() || certified.ended() {
			t.Error("the wrong one gave way to a fifth connection")
		}
		f.Proven(second.from)
		sixth := f.let(t, ca, "10.0.0.3:3", 7)
		if !other.ended() || second.ended() || certified.ended() || fifth.ended() || sixth.ended() {
			t.Error("the wrong one gave way to a sixth connection")
		}
		if !ended(f.dial("10.0.0.3:4")) {
			t.Error("somebody who is known gave way")
		}
		f.counts.want(t, 4, map[string]int{"limit connections": 2, "limit strangers": 2})
	})
}

func TestStrangersOfAnAddressGiveWay(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server(), Limits: Limits{PerAddress: 1}})
		other, own := f.let(t, ca, "10.0.0.1:1", 0), f.let(t, ca, "10.0.0.2:1", 0)
		<-time.After(patience)
		f.let(t, ca, "10.0.0.2:2", 0)
		if other.ended() || !own.ended() {
			t.Error("the wrong one gave way")
		}
	})
}

// A client with a credential that is silent for long after it has connected is a
// stranger: its first call finds another connection, and the caller hears of nothing.
func TestSilentClientComesAgain(t *testing.T) {
	ca := newAuthority(t)
	addr, c := serveGRPC(t, Config{TLS: ca.server("h2"), Limits: Limits{StrangerTime: 50 * time.Millisecond}}, Streams{Max: 10}, nil)
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(credentials.NewTLS(ca.client(0))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn.Connect()
	for _, want := range []connectivity.State{connectivity.Ready, connectivity.Idle} {
		for s := conn.GetState(); s != want; s = conn.GetState() {
			if !conn.WaitForStateChange(ctx, s) {
				t.Fatalf("the connection is %v, and never %v", s, want)
			}
		}
	}
	if got := c.count("limit strangers"); got != 1 {
		t.Errorf("%d connections of strangers were ended", got)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("the first call: %v", err)
	}
}

// Over gRPC, what strangers say of calls that they do not complete would be held.
func TestStrangersSayLittle(t *testing.T) {
	ca := newAuthority(t)
	addr, c := serveGRPC(t, Config{TLS: ca.server("h2")}, Streams{Max: 10_000}, nil)
	say := func(serial int64) (sent int) {
		r := dialRaw(t, addr, ca.client(serial, "h2"))
		ended := make(chan struct{})
		go func() {
			r.until(func(http2.Frame) bool { return false })
			close(ended)
		}()
		for stream := uint32(1); stream < 400; stream += 2 { // each with the head of a message of 64 KiB
			if r.open(stream) != nil || r.WriteData(stream, false, append([]byte{0, 0, 1, 0, 0}, bytes.Repeat([]byte{1}, 1000)...)) != nil {
				break
			}
			sent += 1000
		}
		if serial == 0 {
			<-ended
		}
		return sent
	}
	say(0)
	if got := c.count("limit strangers"); got != 1 {
		t.Errorf("counted %d times that a stranger says too much", got)
	}
	if sent := say(5); sent != 200_000 || c.count("limit strangers") != 1 {
		t.Errorf("somebody with a certificate said %d bytes, and no more", sent)
	}
	check(t, addr, credentials.NewTLS(ca.client(0))) // a stranger who asks whether it is well
}
