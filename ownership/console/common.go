package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

const (
	// keptEvents begin a full picture.
	keptEvents = 200
	// eventsPerDelta bounds one message: when more has happened, the newest are
	// told. No person reads four hundred lines a second.
	eventsPerDelta = 200
	// settle is how often what only ages is told, if nothing else has changed.
	settle = time.Second
)

// part is one section of a message: its JSON, and whether it differs from that of
// the look before.
type part struct {
	json    []byte
	changed bool
}

// rows is a part made of rows. What only ages is told once per settle.
type rows[T comparable] struct {
	part
	last []T
	at   time.Time
}

func (r *rows[T]) set(now time.Time, next []T, still func(T) T, wire func(*T) any) {
	same := r.json != nil && len(next) == len(r.last)
	for i := 0; same && i < len(next); i++ {
		same = still(next[i]) == still(r.last[i])
	}
	if r.changed = !same || now.Sub(r.at) >= settle && !slices.Equal(next, r.last); !r.changed {
		return
	}
	out := make([]any, len(next))
	for i := range next {
		out[i] = wire(&next[i])
	}
	r.json, r.last, r.at = encode(out), next, now
}

func itself[T any](v T) T     { return v }
func pointer[T any](v *T) any { return v }

// encode cannot fail on what is encoded here: rows of numbers and strings.
func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return raw
}

// common is what viewers of all keyspaces see alike, as of the last look.
type common struct {
	src      Source
	gossip   Gossip
	listed   []*pb.Keyspace
	cluster  rows[clusterLook]
	keyspace rows[keyspaceRow]
	workers  rows[workerRow]
	servers  rows[serverRow]
	members  rows[memberRow]

	revision uint64
	events   [][]byte // the newest, oldest first
	fresh    [][]byte // those among them that the last look found
}

// clusterLook is the cluster's row with the list that cannot be compared.
type clusterLook struct {
	clusterRow
	versions string // JSON
}

func (c *common) look(now time.Time, blocked map[string]int) {
	peers := c.src.Peers()
	workers, leading := c.src.Workers()
	look := clusterLook{clusterOf(c.src.Status(), leading), string(encode(versionsOf(peers)))}
	c.cluster.set(now, []clusterLook{look}, func(l clusterLook) clusterLook {
		l.clusterRow = l.still()
		return l
	}, func(l *clusterLook) any {
		return struct {
			*clusterRow
			Versions json.RawMessage `json:"versions"`
		}{&l.clusterRow, json.RawMessage(l.versions)}
	})
	if c.cluster.changed { // there is one of it
		c.cluster.json = c.cluster.json[1 : len(c.cluster.json)-1]
	}
	c.keyspace.set(now, keyspacesOf(c.listed, blocked), itself, pointer)
	c.workers.set(now, workersOf(workers, leading), workerRow.still, (*workerRow).wire)
	c.servers.set(now, serversOf(peers), serverRow.still, pointer)
	c.members.set(now, membersOf(c.gossip.Members()), itself, pointer)
	c.tell()
}

// tell fetches the events since the last look.
func (c *common) tell() {
	c.fresh = nil
	limit := eventsPerDelta
	if c.revision == 0 {
		limit = keptEvents
	}
	items, revision := c.src.NewestEvents(c.revision, limit)
	if revision < c.revision {
		// The state was put back behind what has been told. Begin again.
		c.events = nil
		items, revision = c.src.NewestEvents(0, keptEvents)
	}
	c.revision = revision
	for _, m := range items {
		c.fresh = append(c.fresh, encodeEvent(m))
	}
	c.events = append(c.events, c.fresh...)
	c.events = slices.Clone(c.events[max(0, len(c.events)-keptEvents):])
}

func encodeEvent(m proto.Message) []byte {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode an event: %v", err)) // its strings are names that the state machine has checked
	}
	return raw
}
