package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// fuzzed is a server that answers everybody, in memory.
func fuzzed(f *testing.F) *Server {
	f.Helper()
	cfg := DevConfig()
	cfg.GRPCAddr, cfg.RaftAddr, cfg.GossipAddr, cfg.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.DiscardHandler)
	s, err := New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			f.Error(err)
		}
	})
	<-s.Ready()
	return s
}

// FuzzHTTP sends any request to the HTTP port: the console's questions, the API as
// JSON and as Connect, etcd's gateway. No handler may panic, and what is no request
// of theirs is no fault of the server.
func FuzzHTTP(f *testing.F) {
	s := fuzzed(f)
	for _, r := range []struct{ method, target, kind, header, value, body string }{
		{"GET", "/console/api/cells?keyspace=orders&from=0&to=64&order=owner&q=%20w1", "", "Accept", "text/event-stream", ""},
		{"GET", "/console/?keyspace=orders#/partitions", "", "Accept-Encoding", "gzip", ""},
		{"GET", "/metrics", "", "Accept", "application/openmetrics-text; version=1.0.0", ""},
		{"GET", "/version", "", "Authorization", "Bearer lhc_abc123abc123_AAAA", ""},
		{"POST", "/leasehold.v1.KeyspaceService/CreateKeyspace", "application/json", "Connect-Protocol-Version", "1", `{"name":"orders","partitions":8,"ttlMs":"3000","takeover":"TAKEOVER_STRICT"}`},
		{"POST", "/leasehold.v1.PartitionService/ListPartitions", "application/proto", "Connect-Timeout-Ms", "20", "\n\x06orders"},
		{"POST", "/leasehold.v1.EventService/WatchEvents", "application/connect+json", "Connect-Content-Encoding", "gzip", "\x00\x00\x00\x00\x02{}"},
		{"POST", "/v3/kv/range", "application/json", "Grpc-Metadata-Token", "x", `{"key":"YQ==","range_end":"AA=="}`},
		{"POST", "/v3/kv/txn", "application/json", "Authorization", "x", `{"compare":[{"key":"YQ==","result":"EQUAL","target":"VERSION"}],"success":[{"requestPut":{"key":"YQ==","value":"YQ=="}}]}`},
		{"POST", "/v3/watch", "application/json", "", "", `{"create_request":{"key":"YQ=="}}`},
		{"POST", "/v3/auth/authenticate", "application/json", "", "", `{"name":"batch","password":"lhc_abc123abc123_AAAA"}`},
		{"POST", "/v3/lease/grant", "application/json", "", "", `{"TTL":"5"}`},
	} {
		f.Add(r.method, r.target, r.kind, r.header, r.value, r.body)
	}
	f.Fuzz(func(t *testing.T, method, target, kind, header, value, body string) {
		at, err := url.ParseRequestURI(target)
		if err != nil || strings.ContainsAny(target, " \r\n") {
			return // net/http refuses it
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // ends what streams
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, "http://"+s.addrs.HTTP, strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = at.Path, at.RawPath, at.RawQuery
		r.RequestURI, r.RemoteAddr = target, "127.0.0.1:1"
		r.Header = http.Header{http.CanonicalHeaderKey(header): {value}, "Content-Type": {kind}}
		w := httptest.NewRecorder()
		s.http.Handler.ServeHTTP(w, r)
		if w.Code == http.StatusInternalServerError && !strings.Contains(w.Body.String(), "canceled") {
			t.Errorf("%s %q: %d %s", method, target, w.Code, w.Body)
		}
	})
}

// frames writes what the bytes say as frames of HTTP/2, so that lengths are right
// and the fuzzer gets past them: kind, flags, stream, length, and so many bytes.
func frames(data []byte) []byte {
	var out bytes.Buffer
	for len(data) >= 4 {
		kind, flags, stream, n := data[0]%11, data[1], data[2], min(int(data[3]), len(data)-4)
		out.Write([]byte{0, byte(n >> 8), byte(n), kind, flags, 0, 0, 0, stream})
		out.Write(data[4 : 4+n])
		data = data[4+n:]
	}
	return out.Bytes()
}

// compact is the opposite.
func compact(stream []byte) (data []byte) {
	for len(stream) >= 9 {
		n := int(binary.BigEndian.Uint32(append([]byte{0}, stream[:3]...)))
		data = append(append(data, stream[3], stream[4], stream[8], byte(n)), stream[9:9+n]...)
		stream = stream[9+n:]
	}
	return data
}

// aCall is a call as a client of gRPC sends it.
func aCall(path string, message []byte) []byte {
	var head, out bytes.Buffer
	h := hpack.NewEncoder(&head)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "s1"}, {"te", "trailers"},
		{"content-type", "application/grpc"}, {"grpc-timeout", "1S"}, {"authorization", "Bearer lhc_abc123abc123_AAAA"},
	} {
		_ = h.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	w := http2.NewFramer(&out, nil)
	_ = w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 16})
	_ = w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true})
	_ = w.WriteData(1, true, append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...))
	_ = w.WriteRSTStream(1, http2.ErrCodeCancel)
	return out.Bytes()
}

// FuzzHTTP2Frames sends frames to the gRPC port, and then asks whether the server
// is still there.
func FuzzHTTP2Frames(f *testing.F) {
	s := fuzzed(f)
	conn, err := grpc.NewClient(s.addrs.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close() })
	health := healthpb.NewHealthClient(conn)
	for _, call := range [][]byte{
		aCall("/grpc.health.v1.Health/Check", nil),
		aCall("/leasehold.v1.KeyspaceService/GetKeyspace", []byte("\n\x06orders")),
		aCall("/etcdserverpb.KV/Range", []byte("\n\x01a")),
		aCall("/leasehold.v1.SessionService/Attach", nil),
	} {
		f.Add(true, compact(call))
		f.Add(false, call)
	}
	f.Fuzz(func(t *testing.T, framed bool, data []byte) {
		c, err := net.Dial("tcp", s.addrs.GRPC)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if framed {
			data = frames(data)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(append([]byte(http2.ClientPreface), data...)); err == nil {
			_ = c.(*net.TCPConn).CloseWrite()
			_, err = io.Copy(io.Discard, c)
			var slow net.Error
			if errors.As(err, &slow) && slow.Timeout() {
				t.Error("the connection stays open for ten seconds after its end")
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := health.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatalf("the server does not answer any more: %v", err)
		}
	})
}
