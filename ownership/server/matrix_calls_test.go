package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// Answers to a call: its caller was let in when anything but the caller was judged.
const (
	letIn   = "in"
	denied  = "no"  // may not
	unknown = "who" // has not proven who they are
)

// errNobody: there was nobody who could have decided.
var errNobody = errors.New("unavailable")

// badLogin is in etcd's answer to a login, which is open to everybody, by somebody
// whom it does not know.
const badLogin = "invalid user ID or password"

// request is a row of the matrix.
type request struct {
	name   string // of the row
	method string // /package.Service/Method; or a verb and a path
	// ofKeyspace and ofKey: it names matrixKeyspace, or matrixKey, and concerns
	// nobody who has not got it.
	ofKeyspace, ofKey bool
	// send makes it, and tells the answer.
	send func(ctx context.Context, m *caller) (string, error)
}

// grpcRequests are one request of each method that a server serves, and those of
// which one is not enough.
func grpcRequests(t *testing.T, served map[string]grpc.ServiceInfo, addr string) (all []request) {
	for service, info := range served {
		for _, method := range info.Methods {
			name := "/" + service + "/" + method.Name
			d := methodOf(t, name)
			for _, variant := range append([]variant{{}}, variants[name]...) {
				r := request{name: strings.TrimSpace(name + " " + variant.name), method: name}
				filled := r.fill(d, variant.change)
				desc := &grpc.StreamDesc{ServerStreams: method.IsServerStream, ClientStreams: method.IsClientStream}
				r.send = func(ctx context.Context, m *caller) (string, error) {
					answer := newMessage(d.Output())
					return answerOf(answer, roundTrip(ctx, m, desc, name, filled(m), answer))
				}
				all = append(all, r)
				if strings.HasPrefix(name, "/leasehold.v1.") && !method.IsClientStream {
					all = append(all, r.overHTTP(addr, filled, method.IsServerStream))
				}
			}
		}
	}
	return all
}

func methodOf(t *testing.T, name string) protoreflect.MethodDescriptor {
	full := strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", ".")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(full))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d.(protoreflect.MethodDescriptor)
}

func newMessage(d protoreflect.MessageDescriptor) proto.Message {
	mt, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic(err) // generated code registers all
	}
	return mt.New().Interface()
}

// roundTrip sends one message and waits for one.
func roundTrip(ctx context.Context, m *caller, desc *grpc.StreamDesc, method string, req, answer proto.Message) error {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, m.says(method)))
	defer cancel()
	s, err := m.conn.NewStream(ctx, desc, method)
	if err != nil {
		return err
	}
	if err := s.SendMsg(req); err != nil && !errors.Is(err, io.EOF) { // EOF: the answer says why
		return err
	}
	if !desc.ClientStreams {
		if err := s.CloseSend(); err != nil {
			return err
		}
	}
	if err := s.RecvMsg(answer); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// answerOf is what an answer, or the lack of one, says about the caller.
func answerOf(answer proto.Message, err error) (string, error) {
	if w, ok := answer.(*etcdpb.WatchResponse); ok && w.GetCanceled() && strings.Contains(w.GetCancelReason(), "permission denied") {
		return denied, nil // and the stream goes on
	}
	code, reason := status.Code(err), leaseholdv1.ReasonOf(err)
	switch {
	case strings.Contains(status.Convert(err).Message(), badLogin):
		return letIn, nil
	case code == codes.Unauthenticated, reason == leaseholdv1.ReasonUnauthenticated, reason == leaseholdv1.ReasonLimited:
		return unknown, nil
	case code == codes.PermissionDenied:
		return denied, nil
	case code == codes.Unavailable:
		return "", fmt.Errorf("%w: %w", errNobody, err)
	case code == codes.DeadlineExceeded, code == codes.Canceled:
		return "", err
	}
	return letIn, nil
}

// overHTTP is the same request as JSON.
func (r request) overHTTP(addr string, filled func(*caller) proto.Message, stream bool) request {
	method := r.method
	r.name = "POST " + r.name
	r.send = func(ctx context.Context, m *caller) (string, error) {
		body, err := protojson.Marshal(filled(m))
		if err != nil {
			return "", err
		}
		kind := "application/json"
		if stream {
			kind = "application/connect+json"
			body = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body))), body...)
		}
		return m.do(ctx, http.MethodPost, "https://"+addr+method, kind, body)
	}
	return r
}

// do makes a request over HTTP and looks at the answer's head, and at the first part
// of one that may have the error behind it.
func (m *caller) do(ctx context.Context, verb, url, kind string, body []byte) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, verb, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	m.signs(r.Header)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp, err := m.web.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	head := ""
	if resp.StatusCode == http.StatusTooManyRequests || strings.HasPrefix(kind, "application/connect") || strings.Contains(url, "/v3/") {
		part := make([]byte, 4096)
		n, err := resp.Body.Read(part)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		head = string(part[:n])
	}
	switch {
	case resp.StatusCode == http.StatusServiceUnavailable && verb == http.MethodPost, strings.Contains(head, `"code":"unavailable"`):
		return "", errNobody
	case strings.Contains(head, badLogin):
		return letIn, nil
	case resp.StatusCode == http.StatusUnauthorized, strings.Contains(head, "unauthenticated"), strings.Contains(head, "user name is empty"),
		resp.StatusCode == http.StatusTooManyRequests && strings.Contains(head, "failed logins"):
		return unknown, nil
	case resp.StatusCode == http.StatusForbidden, strings.Contains(head, "permission_denied"), strings.Contains(head, "permission denied"):
		return denied, nil
	}
	return letIn, nil
}

// httpRequests are of what HTTP has beside the native calls.
func httpRequests(addr string) (all []request) {
	add := func(verb, path, body string, ofKey bool) {
		kind := ""
		if body != "" {
			kind = "application/json"
		}
		all = append(all, request{name: verb + " " + path, method: verb + " " + path, ofKey: ofKey, send: func(ctx context.Context, m *caller) (string, error) {
			text := strings.ReplaceAll(body, "CALLER", m.name)
			return m.do(ctx, verb, "https://"+addr+path, kind, []byte(text))
		}})
	}
	for _, path := range []string{"/", "/livez", "/readyz", "/health", "/version", "/metrics", "/ui/", "/ui/feed", "/nothing"} {
		add(http.MethodGet, path, "", false)
	}
	const key = `"L2FwcC9r"` // matrixKey
	for path, body := range map[string]string{
		"/v3/kv/range": `{"key":` + key + `}`, "/v3/kv/put": `{"key":` + key + `}`, "/v3/kv/deleterange": `{"key":` + key + `}`,
		"/v3/kv/txn": `{"success":[{"request_put":{"key":` + key + `}}]}`,
		"/v3/watch":  `{"create_request":{"key":` + key + `}}`, "/v3/lock/lock": `{"name":` + key + `,"lease":"7"}`,
	} {
		add(http.MethodPost, path, body, true)
	}
	for path, body := range map[string]string{
		"/v3/lease/grant": `{"TTL":"60"}`, "/v3/lease/leases": `{}`, "/v3/kv/compaction": `{"revision":"9000000000"}`, "/v3/maintenance/status": `{}`,
		"/v3/maintenance/snapshot": `{}`, "/v3/auth/user/list": `{}`, "/v3/auth/authenticate": `{"name":"CALLER","password":"x"}`,
		"/v3/cluster/member/list": `{}`, "/v3/nothing": `{}`,
	} {
		add(http.MethodPost, path, body, false)
	}
	return all
}

// variant is another request of a method than the first that comes to mind.
type variant struct {
	name   string
	change func(proto.Message)
}

// Names of variants that the rules know.
const (
	ofAnother  = "for another's lease" // matrixLease
	everywhere = "for everywhere"
)

// variants of methods that are judged by what they are asked.
var variants = map[string][]variant{
	etcdpb.KV_Txn_FullMethodName: {{"that writes", func(m proto.Message) {
		put := &etcdpb.RequestOp{Request: &etcdpb.RequestOp_RequestPut{RequestPut: &etcdpb.PutRequest{Key: []byte(matrixKey)}}}
		nested := &etcdpb.TxnRequest{Failure: []*etcdpb.RequestOp{put}}
		m.(*etcdpb.TxnRequest).Failure = []*etcdpb.RequestOp{{Request: &etcdpb.RequestOp_RequestTxn{RequestTxn: nested}}}
	}}},
	etcdpb.Maintenance_Alarm_FullMethodName: {{"that changes", func(m proto.Message) {
		m.(*etcdpb.AlarmRequest).Action = etcdpb.AlarmRequest_DEACTIVATE
	}}},
	etcdpb.Lease_LeaseKeepAlive_FullMethodName: {{ofAnother, func(m proto.Message) {
		m.(*etcdpb.LeaseKeepAliveRequest).ID = matrixLease
	}}},
	etcdpb.Lease_LeaseTimeToLive_FullMethodName: {{ofAnother, func(m proto.Message) {
		m.(*etcdpb.LeaseTimeToLiveRequest).ID = matrixLease
	}}},
	etcdpb.KV_Put_FullMethodName: {{ofAnother, func(m proto.Message) {
		m.(*etcdpb.PutRequest).Lease = matrixLease
	}}},
	leaseholdv1.CoordinationService_CreateSequential_FullMethodName: {{ofAnother, func(m proto.Message) {
		m.(*leaseholdv1.CreateSequentialRequest).SessionId = matrixLease
	}}},
	leaseholdv1.CredentialService_CreateCredential_FullMethodName: {{everywhere, func(m proto.Message) {
		r := m.(*leaseholdv1.CreateCredentialRequest)
		r.Role, r.Keyspaces = leaseholdv1.Role_ROLE_WORKER, nil
	}}},
	etcdpb.KV_Range_FullMethodName: {{"of all", func(m proto.Message) {
		m.(*etcdpb.RangeRequest).Key, m.(*etcdpb.RangeRequest).RangeEnd = []byte{0}, []byte{0}
	}}},
	leaseholdv1.CoordinationService_Acquire_FullMethodName: {{"at once", func(m proto.Message) {
		m.(*leaseholdv1.AcquireRequest).NoWait = true
	}}},
}

// fill makes a request that names matrixKeyspace and matrixKey where it can, and
// where it names something else, something that is not there: what is asked for by
// those who may must not happen.
func (r *request) fill(d protoreflect.MethodDescriptor, change func(proto.Message)) func(*caller) proto.Message {
	pkg := string(d.ParentFile().Package())
	keys := slices.Contains([]string{"etcdserverpb", "v3lockpb", "v3electionpb"}, pkg) || d.Parent().Name() == "CoordinationService"
	build := func(name string) (proto.Message, filler) {
		m := newMessage(d.Input())
		f := filler{caller: name, keys: keys, message: string(d.Input().Name())}
		f.fields(m.ProtoReflect(), 0)
		if change != nil {
			change(m)
		}
		return m, f
	}
	_, f := build("")
	r.ofKeyspace, r.ofKey = f.ofKeyspace, f.ofKey
	return func(m *caller) proto.Message {
		req, _ := build(m.name)
		return req
	}
}

// filler goes through the fields of one request.
type filler struct {
	caller  string
	keys    bool // of the API of keys
	message string

	ofKeyspace, ofKey bool // what it has named
}

func (f *filler) fields(m protoreflect.Message, depth int) {
	all := m.Descriptor().Fields()
	for i := range all.Len() {
		fd := all.Get(i)
		if o := fd.ContainingOneof(); o != nil && o.Fields().Get(0) != fd || fd.IsMap() || depth > 3 {
			continue
		}
		switch {
		case fd.IsList() && fd.Kind() == protoreflect.MessageKind:
			f.fields(m.Mutable(fd).List().AppendMutable().Message(), depth+1)
		case fd.IsList():
			if v := f.value(fd); v.IsValid() && fd.Name() == "keyspaces" {
				m.Mutable(fd).List().Append(v)
			}
		case fd.Kind() == protoreflect.MessageKind:
			f.fields(m.Mutable(fd).Message(), depth+1)
		default:
			if v := f.value(fd); v.IsValid() {
				m.Set(fd, v)
			}
		}
	}
}

// value is what a field says; invalid: nothing.
func (f *filler) value(fd protoreflect.FieldDescriptor) (none protoreflect.Value) {
	name := string(fd.Name())
	switch {
	case name == "cluster_id", name == "range_end", name == "confirm":
		return none
	case f.message == "AuthenticateRequest" && name == "name":
		return protoreflect.ValueOfString(f.caller) // so that nobody is in the way of others
	case f.keys && (name == "key" || name == "name" || name == "prefix") && !strings.HasPrefix(f.message, "Auth"):
		f.ofKey = true
		if fd.Kind() == protoreflect.BytesKind {
			return protoreflect.ValueOfBytes([]byte(matrixKey))
		}
		return protoreflect.ValueOfString(matrixKey)
	case name == "keyspace", name == "keyspaces" && f.message == "AttachRequest", name == "name" && strings.HasSuffix(f.message, "KeyspaceRequest"):
		f.ofKeyspace = true
		return protoreflect.ValueOfString(matrixKeyspace)
	case name == "worker_id":
		return protoreflect.ValueOfString(f.caller)
	case name == "session_id" && f.message == "AttachRequest":
		id := uint64(1)
		for _, c := range f.caller {
			id = id*31 + uint64(c)
		}
		return protoreflect.ValueOfUint64(id >> 1)
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("nobody")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("v"))
	}
	var number int64
	switch {
	case name == "heartbeat_ms":
		number = 100
	case name == "TTL":
		number = 60
	case f.message == "CompactionRequest" && name == "revision":
		number = 9_000_000_000
	case name == "lease" || name == "ID" && f.message != "LeaseGrantRequest" || name == "session_id":
		number = 7
	default:
		return none
	}
	switch fd.Kind() {
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(number)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(uint64(number))
	}
	panic(fmt.Sprintf("field %s is no number", fd.FullName()))
}
