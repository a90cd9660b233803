package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leasehold-dev/leasehold/raftstore/etcdapi/relaypb"
)

// method is the number of a call between servers. Numbers are never reused:
// servers of two releases speak with each other.
type method uint32

const (
	// 1 was for ranges, which every server answers from its own state.
	methodPut             method = 2
	methodDeleteRange     method = 3
	methodTxn             method = 4
	methodCompact         method = 5
	methodLeaseGrant      method = 6
	methodLeaseRevoke     method = 7
	methodRenew           method = 8
	methodLeaseTimeToLive method = 9
	methodReadIndex       method = 10
	methodAlarm           method = 11
	methodEnqueue         method = 12
)

// call is one row of the table: what the leader does for a method. The handlers
// run on the leader only, fill in their answer, and must return when ctx ends.
type call struct {
	name     string
	request  func() proto.Message
	response func() proto.Message
	handle   func(a *API, ctx context.Context, req, resp proto.Message) error
	// reads: it changes nothing, and may be asked again whatever became of it.
	reads bool
	// own: servers ask it for themselves. Everything else is asked for somebody.
	own bool
}

// message is a pointer to a generated message type.
type message[T any] interface {
	*T
	proto.Message
}

func row[Req, Resp any, PReq message[Req], PResp message[Resp]](name string, reads bool, handle func(*API, context.Context, PReq, PResp) error) call {
	return call{
		name:     name,
		reads:    reads,
		request:  func() proto.Message { return PReq(new(Req)) },
		response: func() proto.Message { return PResp(new(Resp)) },
		handle: func(a *API, ctx context.Context, req, resp proto.Message) error {
			return handle(a, ctx, req.(PReq), resp.(PResp))
		},
	}
}

// asked marks what servers ask for themselves.
func (c call) asked() call {
	c.own = true
	return c
}

// callTable has what only the leader can do. It belongs to an API, not to the
// package: the handlers may hand something on themselves.
func callTable() []call {
	return []call{
		methodPut:             row("Put", false, (*API).leadPut),
		methodDeleteRange:     row("DeleteRange", false, (*API).leadDeleteRange),
		methodTxn:             row("Txn", false, (*API).leadTxn),
		methodCompact:         row("Compact", false, (*API).leadCompact),
		methodLeaseGrant:      row("LeaseGrant", false, (*API).leadLeaseGrant),
		methodLeaseRevoke:     row("LeaseRevoke", false, (*API).leadLeaseRevoke),
		methodRenew:           row("Renew", true, (*API).leadRenew),
		methodLeaseTimeToLive: row("LeaseTimeToLive", true, (*API).leadLeaseTimeToLive),
		methodReadIndex:       row("ReadIndex", true, (*API).leadReadIndex).asked(),
		methodAlarm:           row("Alarm", false, (*API).leadAlarm),
		methodEnqueue:         row("Enqueue", false, (*API).leadEnqueue),
	}
}

// callOf returns nil when there is no call of that number.
func (a *API) callOf(m method) *call {
	if int(m) >= len(a.calls) || a.calls[m].handle == nil {
		return nil
	}
	return &a.calls[m]
}

// leadReadIndex answers with an index that holds all that was acknowledged
// before the asking server attested its term.
func (a *API) leadReadIndex(ctx context.Context, q *relaypb.ReadIndexRequest, resp *wrapperspb.UInt64Value) error {
	index, err := a.cfg.Store.ReadIndexFor(ctx, q.GetServer(), q.GetTerm())
	resp.Value = index
	return err
}

// headed are the answers that carry a header.
type headed interface{ GetHeader() *pb.ResponseHeader }

// setMember makes an answer of the leader's this server's own.
func (a *API) setMember(resp proto.Message) {
	if h, ok := resp.(headed); ok && h.GetHeader() != nil {
		h.GetHeader().MemberId = a.self.member
	}
}
