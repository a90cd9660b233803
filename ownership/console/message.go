package console

import (
	"bytes"
	"strconv"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/api"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// The messages of the feed are server-sent events with one JSON object each.
//
//	hello  {protocol, server, cluster_id, version, operator, cli_server}
//	full   {seq, at, keyspace, cluster, keyspaces, workers, servers, gossip, partitions, events}
//	delta  {seq, at} and of the others what has changed; seq is one more than before
//
// In full, partitions has a number per partition in each of its lists:
//
//	{n, owners: [worker, …], owner: [place in owners or -1, …], state: […], since: […], churn: […]}
//
// and {n, omitted: true} of a keyspace with more than mostShown. In delta it has the
// names that are added to owners, and a list per partition that has changed:
//
//	{owners: [worker, …], changed: [[partition, owner, state, since, churn], …]}
const protocol = 1

// mostShown is how many partitions a picture has at most.
const mostShown = 1 << 17

// stateCode is a partition's state as the page knows it.
func stateCode(s pb.PartitionState) byte {
	switch s {
	case pb.PartitionState_PARTITION_STATE_OWNED:
		return '1'
	case pb.PartitionState_PARTITION_STATE_DRAINING:
		return '2'
	case pb.PartitionState_PARTITION_STATE_QUARANTINED:
		return '3'
	case pb.PartitionState_PARTITION_STATE_BLOCKED:
		return '4'
	}
	return '0'
}

// message builds one event of the stream.
type message struct{ buf []byte }

func begin(event string, seq uint64, now time.Time) *message {
	m := &message{make([]byte, 0, 1024)}
	m.buf = append(m.buf, "event: "+event+"\ndata: {\"seq\":"...)
	m.buf = strconv.AppendUint(m.buf, seq, 10)
	m.buf = append(m.buf, `,"at":`...)
	m.buf = strconv.AppendInt(m.buf, now.UnixMilli(), 10)
	return m
}

func (m *message) end() []byte { return append(m.buf, "}\n\n"...) }

func (m *message) field(name string, json []byte) {
	m.buf = append(m.buf, `,"`+name+`":`...)
	m.buf = append(m.buf, json...)
}

func (m *message) events(all [][]byte) {
	m.buf = append(m.buf, `,"events":[`...)
	m.buf = append(m.buf, bytes.Join(all, []byte{','})...)
	m.buf = append(m.buf, ']')
}

// numbers appends a list of n numbers.
func (m *message) numbers(name string, n int, at func(int) int64) {
	m.buf = append(m.buf, `,"`+name+`":[`...)
	for i := range n {
		if i > 0 {
			m.buf = append(m.buf, ',')
		}
		m.buf = strconv.AppendInt(m.buf, at(i), 10)
	}
	m.buf = append(m.buf, ']')
}

// table appends all partitions.
func (m *message) table(t *api.PartitionTable) {
	n := len(t.Owner)
	m.buf = append(m.buf, `,"partitions":{"n":`...)
	m.buf = strconv.AppendInt(m.buf, int64(n), 10)
	owners := t.Owners
	if owners == nil {
		owners = []string{}
	}
	m.field("owners", encode(owners))
	m.numbers("owner", n, func(i int) int64 { return int64(t.Owner[i]) })
	m.numbers("state", n, func(i int) int64 { return int64(stateCode(t.State[i]) - '0') })
	m.numbers("since", n, func(i int) int64 { return t.Since[i] })
	m.numbers("churn", n, func(i int) int64 { return int64(t.Churn[i]) })
	m.buf = append(m.buf, '}')
}

// omitted stands for the partitions of a keyspace that has too many.
func (m *message) omitted(n uint32) {
	m.buf = append(m.buf, `,"partitions":{"n":`...)
	m.buf = strconv.AppendUint(m.buf, uint64(n), 10)
	m.buf = append(m.buf, `,"omitted":true}`...)
}

// changes appends the partitions that the last look found otherwise, and the names
// from place known on.
func (m *message) changes(t *api.PartitionTable, known int) {
	m.buf = append(m.buf, `,"partitions":{`...)
	if known < len(t.Owners) {
		m.buf = append(m.buf, `"owners":`...)
		m.buf = append(m.buf, encode(t.Owners[known:])...)
		m.buf = append(m.buf, ',')
	}
	m.buf = append(m.buf, `"changed":[`...)
	for i, p := range t.Changed {
		if i > 0 {
			m.buf = append(m.buf, ',')
		}
		m.buf = append(m.buf, '[')
		m.buf = strconv.AppendUint(m.buf, uint64(p), 10)
		m.buf = append(m.buf, ',')
		m.buf = strconv.AppendInt(m.buf, int64(t.Owner[p]), 10)
		m.buf = append(m.buf, ',', stateCode(t.State[p]), ',')
		m.buf = strconv.AppendInt(m.buf, t.Since[p], 10)
		m.buf = append(m.buf, ',')
		m.buf = strconv.AppendUint(m.buf, uint64(t.Churn[p]), 10)
		m.buf = append(m.buf, ']')
	}
	m.buf = append(m.buf, "]}"...)
}
