package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
)

// serveGRPC serves health on loopback under the Credentials, and returns the
// address. seen gets the peer of each call.
func serveGRPC(t *testing.T, cfg Config, streams Streams, seen chan<- *peer.Peer) (string, *counts) {
	t.Helper()
	c := &counts{}
	cfg.Metrics, streams.Metrics = c, c
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.Creds(Credentials(streams)), grpc.MaxConcurrentStreams(uint32(streams.Max)),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
			if p, ok := peer.FromContext(ctx); ok && seen != nil {
				seen <- p
			}
			return h(ctx, req)
		}))
	healthpb.RegisterHealthServer(g, health.NewServer())
	done := make(chan error, 1)
	go func() { done <- g.Serve(New(ln, cfg)) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String(), c
}

func check(t *testing.T, addr string, creds credentials.TransportCredentials) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
}

// Calls know who is at the other end of their connection.
func TestGRPCSeesTheCertificate(t *testing.T) {
	ca, seen := newAuthority(t), make(chan *peer.Peer, 2)
	addr, _ := serveGRPC(t, Config{TLS: ca.server("h2")}, Streams{Max: 10}, seen)
	check(t, addr, credentials.NewTLS(ca.client(0xab)))
	info, ok := (<-seen).AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) != 1 || info.State.PeerCertificates[0].SerialNumber.Int64() != 0xab || info.SecurityLevel != credentials.PrivacyAndIntegrity {
		t.Errorf("the call sees %+v", info)
	}
	plain, _ := serveGRPC(t, Config{}, Streams{Max: 10}, seen)
	check(t, plain, insecure.NewCredentials())
	if _, ok := (<-seen).AuthInfo.(credentials.TLSInfo); ok {
		t.Error("a plain connection passes for one with TLS")
	}
}

// raw is an HTTP/2 client that does as it likes.
type raw struct {
	net.Conn
	*http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

func dialRaw(t *testing.T, addr string, cfg *tls.Config) *raw {
	t.Helper()
	var conn net.Conn
	var err error
	if conn, err = net.Dial("tcp", addr); err == nil && cfg != nil {
		conn = tls.Client(conn, cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write([]byte(clientPreface)); err != nil {
		t.Fatal(err)
	}
	r := &raw{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	r.enc = hpack.NewEncoder(&r.block)
	if err := r.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return r
}

// open begins a call that never ends by itself.
func (r *raw) open(stream uint32) error {
	r.block.Reset()
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", healthpb.Health_Watch_FullMethodName}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = r.enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	return r.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: r.block.Bytes(), EndHeaders: true})
}

// until reads frames until one is as wanted; false: the connection ended before.
func (r *raw) until(want func(http2.Frame) bool) bool {
	for {
		f, err := r.ReadFrame()
		if err != nil {
			return false
		}
		if want(f) {
			return true
		}
	}
}

func TestRapidResetsEndTheConnection(t *testing.T) {
	ca := newAuthority(t)
	addr, c := serveGRPC(t, Config{TLS: ca.server("h2")}, Streams{Max: 100}, nil)
	check(t, addr, credentials.NewTLS(ca.client(0)))
	r := dialRaw(t, addr, ca.client(0, "h2"))
	reading := make(chan bool, 1)
	go func() { reading <- r.until(func(http2.Frame) bool { return false }) }()
	sent := 0
	for ; sent < 20_000; sent++ {
		stream := uint32(2*sent + 1)
		if r.open(stream) != nil || r.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			break
		}
	}
	<-reading
	if sent == 20_000 || sent < minResetBurst {
		t.Errorf("the connection ended after %d resets", sent)
	}
	if got := c.count("limit resets"); got != 1 {
		t.Errorf("counted %d times", got)
	}
	check(t, addr, credentials.NewTLS(ca.client(0))) // others are served
}

// Servers give up for all their clients.
func TestResetsOfServersAreNotBounded(t *testing.T) {
	ca := newAuthority(t)
	addr, c := serveGRPC(t, Config{TLS: ca.server("h2")}, Streams{Max: 100, Exempt: func(cs tls.ConnectionState) bool { return len(cs.PeerCertificates) > 0 }}, nil)
	r := dialRaw(t, addr, ca.client(3, "h2"))
	for stream := uint32(1); stream < 4*minResetBurst; stream += 2 {
		if r.open(stream) != nil || r.WriteRSTStream(stream, http2.ErrCodeCancel) != nil {
			t.Fatalf("the connection ended at stream %d", stream)
		}
	}
	if err := r.WritePing(false, [8]byte{7}); err != nil {
		t.Fatal(err)
	}
	answered := r.until(func(f http2.Frame) bool {
		ping, ok := f.(*http2.PingFrame)
		return ok && ping.IsAck() && ping.Data[0] == 7
	})
	if !answered || c.count("limit resets") > 0 {
		t.Error("the connection of a server was ended")
	}
}

func TestRefusedStreamsAreCounted(t *testing.T) {
	addr, c := serveGRPC(t, Config{}, Streams{Max: 2}, nil)
	r := dialRaw(t, addr, nil)
	for stream := uint32(1); stream <= 5; stream += 2 { // does not look at what the server allows
		if err := r.open(stream); err != nil {
			t.Fatal(err)
		}
	}
	refused := r.until(func(f http2.Frame) bool {
		reset, ok := f.(*http2.RSTStreamFrame)
		return ok && reset.ErrCode == http2.ErrCodeRefusedStream && reset.StreamID == 5
	})
	if !refused {
		t.Error("a third stream was not refused")
	}
	if got := c.count("limit streams"); got != 1 {
		t.Errorf("counted %d times", got)
	}
}

// gRPC is spoken over h2 only where both sides have said so.
func TestGRPCWantsALPN(t *testing.T) {
	ca := newAuthority(t)
	addr, _ := serveGRPC(t, Config{TLS: ca.server("h2")}, Streams{Max: 10}, nil)
	conn, err := tls.Dial("tcp", addr, ca.client(0))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if n, err := conn.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes for a client that has not said what it speaks", n)
	}
}

// A client that does not believe the server is nobody who was refused.
func TestClientRefusesTheServer(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	c, log := &counts{emptied: gone}, &bytes.Buffer{}
	l := New(ln, Config{TLS: newAuthority(t).server(), Metrics: c, Logger: slog.New(slog.NewTextHandler(log, nil))})
	accepting := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepting <- err
	}()
	if _, err := tls.Dial("tcp", ln.Addr().String(), newAuthority(t).client(0)); err == nil {
		t.Error("a client believes any server")
	}
	<-gone
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-accepting
	c.want(t, 0, nil)
	if !strings.Contains(log.String(), "does not believe this server's certificate") {
		t.Errorf("logged: %s", log)
	}
}

// HTTP has HTTP/1.1 and HTTP/2 from the same listener, and the certificate.
func TestHTTPBehindTheListener(t *testing.T) {
	ca := newAuthority(t)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) != 1 {
			t.Errorf("the request has no certificate")
		}
		w.Header().Set("Proto", r.Proto)
	}))
	srv.Listener = New(srv.Listener, Config{TLS: ca.server("h2", "http/1.1")})
	srv.Start()
	defer srv.Close()
	for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: ca.client(3), ForceAttemptHTTP2: h2}}
		resp, err := client.Get("https://" + srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		client.CloseIdleConnections()
		if got := resp.Header.Get("Proto"); got != proto {
			t.Errorf("served over %s, want %s", got, proto)
		}
	}
}

// FuzzFrames wants the same resets found whatever pieces a stream comes in, and as
// many as the library finds.
func FuzzFrames(f *testing.F) {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	_ = w.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1 << 14})
	_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
	_ = w.WriteData(3, true, []byte("some data that is longer than a header of a frame"))
	_ = w.WriteRSTStream(3, http2.ErrCodeRefusedStream)
	_ = w.WritePing(false, [8]byte{3, 3, 3})
	f.Add(b.Bytes(), 1)
	f.Add(b.Bytes(), 13)
	f.Add([]byte{0, 0, 5, 3, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5}, 2)
	f.Fuzz(func(t *testing.T, data []byte, piece int) {
		var whole, pieces frames
		var a, b []uint32
		whole.scan(data, func(code uint32) { a = append(a, code) })
		for part := range slices.Chunk(data, max(1, piece)) {
			pieces.scan(part, func(code uint32) { b = append(b, code) })
		}
		if !slices.Equal(a, b) || whole.skip != pieces.skip || whole.have != pieces.have {
			t.Fatalf("%v in one piece, %v in pieces of %d", a, b, piece)
		}
		r := http2.NewFramer(nil, bytes.NewReader(data))
		r.SetMaxReadFrameSize(1<<24 - 1)
		for i := 0; ; {
			frame, err := r.ReadFrame()
			if err != nil {
				return // what is no HTTP/2 ends a connection
			}
			if reset, ok := frame.(*http2.RSTStreamFrame); ok {
				if i >= len(a) || a[i] != uint32(reset.ErrCode) {
					t.Fatalf("reset %d is %v, found %v", i, reset, a)
				}
				i++
			}
		}
	})
}
