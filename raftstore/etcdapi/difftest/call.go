package difftest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// Methods that are called, by their wire names.
const (
	methodRange      = "/etcdserverpb.KV/Range"
	methodPut        = "/etcdserverpb.KV/Put"
	methodDelete     = "/etcdserverpb.KV/DeleteRange"
	methodTxn        = "/etcdserverpb.KV/Txn"
	methodCompact    = "/etcdserverpb.KV/Compact"
	methodGrant      = "/etcdserverpb.Lease/LeaseGrant"
	methodRevoke     = "/etcdserverpb.Lease/LeaseRevoke"
	methodTimeToLive = "/etcdserverpb.Lease/LeaseTimeToLive"
	methodLeases     = "/etcdserverpb.Lease/LeaseLeases"
	methodKeepAlive  = "/etcdserverpb.Lease/LeaseKeepAlive"
	methodHashKV     = "/etcdserverpb.Maintenance/HashKV"
)

var answers = map[string]proto.Message{
	methodRange:      (*pb.RangeResponse)(nil),
	methodPut:        (*pb.PutResponse)(nil),
	methodDelete:     (*pb.DeleteRangeResponse)(nil),
	methodTxn:        (*pb.TxnResponse)(nil),
	methodCompact:    (*pb.CompactionResponse)(nil),
	methodGrant:      (*pb.LeaseGrantResponse)(nil),
	methodRevoke:     (*pb.LeaseRevokeResponse)(nil),
	methodTimeToLive: (*pb.LeaseTimeToLiveResponse)(nil),
	methodLeases:     (*pb.LeaseLeasesResponse)(nil),
	methodKeepAlive:  (*pb.LeaseKeepAliveResponse)(nil),
	methodHashKV:     (*pb.HashKVResponse)(nil),
}

// Call is one request, the same for both sides.
type Call struct {
	Method string
	Req    proto.Message
	// At chooses the server, modulo how many a side has.
	At int
}

// local reports whether a server may answer from what it has at the moment.
func (c *Call) local() bool {
	switch req := c.Req.(type) {
	case *pb.LeaseLeasesRequest:
		return true
	case *pb.TxnRequest:
		for _, op := range slices.Concat(req.Success, req.Failure) {
			if r := op.GetRequestRange(); r == nil || !r.Serializable {
				return false
			}
		}
		return true
	}
	return false
}

// answer returns an empty message of the call's answer.
func (c *Call) answer() proto.Message {
	return answers[c.Method].ProtoReflect().New().Interface()
}

// String shows the call as it was sent.
func (c *Call) String() string {
	return fmt.Sprintf("%s at server %d: %s", c.Method[strings.LastIndexByte(c.Method, '/')+1:], c.At, show(c.Req))
}

// quoted matches each text of a message.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// show is a message on one line, long texts cut.
func show(m proto.Message) string {
	if m == nil || !m.ProtoReflect().IsValid() {
		return "none"
	}
	return quoted.ReplaceAllStringFunc(prototext.MarshalOptions{}.Format(m), func(text string) string { return shorten(text, 60) })
}

// operations counts what the answer to c carried out, as the package comment
// says.
func operations(a Answer) int {
	txn, ok := a.Resp.(*pb.TxnResponse)
	if !ok {
		return 1
	}
	return max(1, txnOperations(txn))
}

func txnOperations(txn *pb.TxnResponse) int {
	n := 0
	for _, op := range txn.GetResponses() {
		if nested := op.GetResponseTxn(); nested != nil {
			n += txnOperations(nested)
		} else {
			n++
		}
	}
	return n
}
