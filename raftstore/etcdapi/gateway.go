package etcdapi

import (
	"context"
	"io"
	"net"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3electionpb"
	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/v3lockpb"
)

// gateway serves the calls as JSON over HTTP, the way etcd's own does: POST
// /v3/kv/range and so on, keys and values in base64, 64-bit numbers as strings,
// streams as one object after another. It speaks to this server's services over
// a connection that never leaves the process, each call as whoever made the HTTP
// request (access.FromContext), and the table of permissions is asked as for any other.
type gateway struct {
	listener *bufconn.Listener
	server   *grpc.Server
	conn     *grpc.ClientConn
	mux      *runtime.ServeMux
}

// gatewayBuffer is how much may be on its way between the two halves.
const gatewayBuffer = 1 << 20

func newGateway(a *API) (*gateway, error) {
	g := &gateway{
		listener: bufconn.Listen(gatewayBuffer),
		server:   grpc.NewServer(append(a.gatewayOptions(), grpc.MaxRecvMsgSize(a.cfg.MaxRequestBytes+recvOverhead))...),
		mux:      runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, bounded{etcdJSON(), jsonBytes(a.cfg.MaxRequestBytes)})),
	}
	var err error
	g.conn, err = grpc.NewClient("passthrough:///in-process", append(inwardOptions(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return g.listener.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))...)
	if err != nil {
		return nil, err
	}
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		gw.RegisterKVHandler, gw.RegisterWatchHandler, gw.RegisterLeaseHandler,
		gw.RegisterClusterHandler, gw.RegisterMaintenanceHandler, gw.RegisterAuthHandler,
		v3lockpb.RegisterLockHandler, v3electionpb.RegisterElectionHandler,
	} {
		if err := register(context.Background(), g.mux, g.conn); err != nil {
			_ = g.conn.Close()
			return nil, err
		}
	}
	return g, nil
}

const (
	// recvOverhead is what a message may have beside its keys and values; what lies
	// between gets an error that tells the limit.
	recvOverhead = 512 << 10
	// maxAnswerBytes is what one answer may have: a range is not bounded.
	maxAnswerBytes = 1<<31 - 1
)

// etcdJSON writes fields by the names of the proto file and leaves empty ones out.
func etcdJSON() *runtime.HTTPBodyMarshaler {
	return &runtime.HTTPBodyMarshaler{Marshaler: &runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}}
}

// jsonBytes is how much JSON a message of that many bytes may be: base64 takes four
// thirds, and what a transaction says beside its keys and values has some room.
func jsonBytes(message int) int64 { return 2*int64(message) + recvOverhead }

// bounded reads no more than most bytes for one message: the decoder holds what it
// reads until the message is whole, and the inner server sees it only then.
type bounded struct {
	*runtime.HTTPBodyMarshaler
	most int64
}

func (b bounded) NewDecoder(r io.Reader) runtime.Decoder {
	in := &boundedReader{r: r}
	d := b.HTTPBodyMarshaler.NewDecoder(in)
	return runtime.DecoderFunc(func(m any) error {
		in.left = b.most
		return d.Decode(m)
	})
}

// boundedReader fails when no more is left.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, rpctypes.ErrRequestTooLarge
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// run serves the inner connection until ctx ends.
func (g *gateway) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, g.server.Stop)
	defer stop()
	_ = g.server.Serve(g.listener) // it ends with Stop
	_ = g.conn.Close()
}

func (a *API) httpHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v3/", a.gateway.mux)
	mux.HandleFunc("/version", a.serveVersion)
	mux.HandleFunc("/health", a.serveHealth)
	return mux
}
