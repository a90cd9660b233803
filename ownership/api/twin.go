package api

import (
	"context"
	"errors"
	"net/http"
	"path"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1/leaseholdv1connect"
)

// way is what a call over HTTP goes through before it is one of the API's.
type way struct {
	api   *API
	guard *auth.Auth
}

// twin serves every call as JSON over HTTP. A call takes the same way as one
// over gRPC, in this process: the rules, the interceptor with its limits,
// forwarding and error table, then the same methods.
func (a *API) twin(guard *auth.Auth) http.Handler {
	w := way{a, guard}
	opts := []connect.HandlerOption{
		connect.WithReadMaxBytes(hardLimit * a.cfg.MaxRequestBytes),
		connect.WithCodec(jsonCodec{}),
	}
	mux := http.NewServeMux()
	mux.Handle(leaseholdv1connect.NewClusterServiceHandler(clusterTwin{&cluster{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewKeyspaceServiceHandler(keyspaceTwin{&keyspaces{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewPartitionServiceHandler(partitionTwin{&partitions{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewWorkerServiceHandler(workerTwin{&workers{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewEventServiceHandler(eventTwin{&events{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewSessionServiceHandler(sessionTwin{&sessions{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewCoordinationServiceHandler(coordinationTwin{&coordination{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewRingServiceHandler(ringTwin{&rings{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewCredentialServiceHandler(credentialTwin{&credentials{API: a}, w}, opts...))
	mux.Handle(leaseholdv1connect.NewGossipServiceHandler(gossipTwin{&gossips{API: a}, w}, opts...))
	// Over HTTP/1.1 connect would refuse a stream in both directions without a
	// word about why.
	refuse := connect.NewErrorWriter(opts...)
	mux.HandleFunc(pb.SessionService_Attach_FullMethodName, func(w http.ResponseWriter, r *http.Request) {
		_ = refuse.Write(w, r, toConnect(unsupported(pb.SessionService_Attach_FullMethodName)))
	})
	return mux
}

// jsonCodec writes the names of the proto file, as the command line does.
type jsonCodec struct{}

func (jsonCodec) Name() string { return "json" }

func (jsonCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errors.New("marshal: not a protobuf message")
	}
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
}

func (jsonCodec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return errors.New("unmarshal: not a protobuf message")
	}
	if len(data) == 0 {
		return errors.New("empty body: want a JSON object, {} for no fields")
	}
	return protojson.Unmarshal(data, m) // unknown fields are errors: they are typing errors
}

// header collects what a handler sets with grpc.SetHeader.
type header struct {
	method string
	set    http.Header
}

func (h *header) Method() string { return h.method }

func (h *header) SetHeader(md metadata.MD) error {
	for k, vs := range md {
		for _, v := range vs {
			h.set.Add(k, v)
		}
	}
	return nil
}

func (h *header) SendHeader(md metadata.MD) error { return h.SetHeader(md) }
func (h *header) SetTrailer(metadata.MD) error    { return nil }

// inProcess gives a call over HTTP what the interceptors look for in one over
// gRPC.
func inProcess(ctx context.Context, name string) context.Context {
	h := &header{method: name, set: http.Header{}}
	if info, ok := connect.CallInfoForHandlerContext(ctx); ok {
		h.set = info.ResponseHeader()
	}
	return grpc.NewContextWithServerTransportStream(ctx, h)
}

// call runs a unary method the way gRPC would.
func call[Req, Resp any](ctx context.Context, w way, name string, req *Req, do func(context.Context, *Req) (*Resp, error)) (*Resp, error) {
	info := &grpc.UnaryServerInfo{FullMethod: name}
	resp, err := w.guard.Unary(inProcess(ctx, name), req, info, func(ctx context.Context, req any) (any, error) {
		return w.api.interceptUnary(ctx, req, info, func(ctx context.Context, req any) (any, error) {
			return do(ctx, req.(*Req))
		})
	})
	if err != nil {
		return nil, toConnect(err)
	}
	return resp.(*Resp), nil
}

// toConnect carries code, message and details over.
func toConnect(err error) error {
	s := status.Convert(err)
	e := connect.NewError(connect.Code(s.Code()), errors.New(s.Message()))
	if d := pb.DetailOf(err); d != nil {
		if detail, err := connect.NewErrorDetail(d); err == nil {
			e.AddDetail(detail)
		}
	}
	return e
}

func unsupported(name string) error {
	return failf(pb.ReasonUnsupported, "%s is a stream in both directions, which plain HTTP does not have", path.Base(name))
}
