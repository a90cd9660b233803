package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// Numbers of the fields of WatchResponse that payloads hold.
const (
	fieldHeader = 1
	fieldEvents = 11
)

// payload is a message to a watcher but for its id, encoded once for all the
// watchers that it goes to. It must not be changed.
type payload struct {
	parts       [][]byte // more than one only for watchers that take fragments
	first, last int64    // revisions of its events
	size        int      // bytes of all parts
}

// message is one part of p for one watcher. What p has encoded goes along as it
// is: protobuf's encoding of a message is that of its fields one after the other.
func (p *payload) message(id int64, part int) *pb.WatchResponse {
	m := &pb.WatchResponse{WatchId: id, Fragment: part < len(p.parts)-1}
	m.ProtoReflect().SetUnknown(p.parts[part])
	return m
}

// batch is consecutive events, which it encodes as they are wanted, once.
type batch struct {
	events      []mvcc.Event
	plain, prev [][]byte
}

func newBatch(events []mvcc.Event) *batch {
	return &batch{events: events, plain: make([][]byte, len(events))}
}

// wire is event i as a field of a WatchResponse.
func (b *batch) wire(i int, prev bool) []byte {
	e := &b.events[i]
	if !prev || e.Prev == nil {
		if b.plain[i] == nil {
			b.plain[i] = encodeEvent(e, nil)
		}
		return b.plain[i]
	}
	if b.prev == nil {
		b.prev = make([][]byte, len(b.events))
	}
	if b.prev[i] == nil {
		b.prev[i] = encodeEvent(e, e.Prev)
	}
	return b.prev[i]
}

func encodeEvent(e *mvcc.Event, prev *mvcc.KeyValue) []byte {
	m := &mvccpb.Event{Kv: keyValue(e.KV), PrevKv: keyValue(prev)}
	if e.Delete {
		m.Type = mvccpb.Event_DELETE
		m.Kv = &mvccpb.KeyValue{Key: e.KV.Key, ModRevision: e.KV.ModRevision}
	}
	size := proto.Size(m)
	out := make([]byte, 0, 1+protowire.SizeBytes(size))
	out = protowire.AppendTag(out, fieldEvents, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(size))
	out, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(out, m)
	if err != nil {
		panic("etcdapi: encode an event: " + err.Error()) // it has no required and no text fields
	}
	return out
}

func keyValue(kv *mvcc.KeyValue) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	return &mvccpb.KeyValue{
		Key: kv.Key, Value: kv.Value, Lease: kv.Lease,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version,
	}
}

func encodeHeader(h *pb.ResponseHeader) []byte {
	b, err := proto.Marshal(h)
	if err != nil {
		panic("etcdapi: encode a header: " + err.Error()) // numbers alone
	}
	out := protowire.AppendTag(nil, fieldHeader, protowire.BytesType)
	return protowire.AppendBytes(out, b)
}

// packing says how events become messages.
type packing struct {
	header   func(revision int64) *pb.ResponseHeader
	message  int // bytes after which a message ends with its revision
	fragment int // bytes of a fragment, for watchers that take them
}

// payloads makes messages of those events of b, by position, that sp wants.
// Events of one revision stay together. The last message has revision in its
// header, the others that of their last event.
func (k *packing) payloads(b *batch, sp *spec, hits []int, revision int64) []*payload {
	var done []*payload
	var open []int // of the message that is being filled
	size := 0
	for _, i := range hits {
		e := &b.events[i]
		if e.Delete && sp.noDelete || !e.Delete && sp.noPut {
			continue
		}
		if size >= k.message && b.events[open[len(open)-1]].Revision() != e.Revision() {
			done = append(done, k.pack(b, sp, open, b.events[open[len(open)-1]].Revision()))
			open, size = open[:0], 0
		}
		open = append(open, i)
		size += len(b.wire(i, sp.prev))
	}
	if len(open) > 0 {
		done = append(done, k.pack(b, sp, open, revision))
	}
	return done
}

// pack makes one message, or its fragments.
func (k *packing) pack(b *batch, sp *spec, events []int, revision int64) *payload {
	p := &payload{first: b.events[events[0]].Revision(), last: b.events[events[len(events)-1]].Revision()}
	header := encodeHeader(k.header(revision))
	part := append([]byte(nil), header...)
	for n, i := range events {
		wire := b.wire(i, sp.prev)
		if sp.fragment && n > 0 && len(part) > len(header) && len(part)+len(wire) >= k.fragment {
			p.parts = append(p.parts, part)
			part = append([]byte(nil), header...)
		}
		part = append(part, wire...)
	}
	p.parts = append(p.parts, part)
	for _, part := range p.parts {
		p.size += len(part)
	}
	return p
}
