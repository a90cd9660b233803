package api

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// debugEvents is how many of the newest events an archive has.
const debugEvents = 1000

// debugFiles are what the API itself knows, all from this server's own state:
// an archive is most wanted when there is no leader.
func (a *cluster) debugFiles() []DebugFile {
	workers := &workers{API: a.API}
	message := func(name string, late bool, make func(context.Context) (proto.Message, error)) DebugFile {
		return DebugFile{Name: name, Late: late, Read: func(ctx context.Context) ([]byte, error) {
			m, err := make(ctx)
			if err != nil {
				return nil, err
			}
			return debugJSON(m)
		}}
	}
	return []DebugFile{
		message("status.json", true, func(ctx context.Context) (proto.Message, error) { return a.GetStatus(ctx, nil) }),
		message("health.json", true, func(context.Context) (proto.Message, error) { return a.health(), nil }),
		message("peers.json", true, func(ctx context.Context) (proto.Message, error) { return a.ListPeers(ctx, nil) }),
		message("keyspaces.json", false, func(ctx context.Context) (proto.Message, error) {
			return (&keyspaces{API: a.API}).ListKeyspaces(ctx, &pb.ListKeyspacesRequest{Stale: true})
		}),
		message("workers.json", true, func(ctx context.Context) (proto.Message, error) {
			list, err := workers.ListWorkers(ctx, &pb.ListWorkersRequest{Stale: true})
			hideLabels(list.GetItems())
			return list, err
		}),
		{Name: "partitions.json", Late: true, Read: a.partitionSums},
		message("events.json", true, func(context.Context) (proto.Message, error) { return a.newestEvents(debugEvents), nil }),
		{Name: goroutinesName, Late: true, Read: goroutines},
	}
}

// debugJSON is the JSON of the command line, indented.
func debugJSON(m proto.Message) ([]byte, error) {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true, Multiline: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	return append(raw, '\n'), nil
}

// hideLabels takes out the values of labels that are called like secrets. The
// messages are the caller's own copies.
func hideLabels(all []*pb.Worker) {
	for _, w := range all {
		for name := range w.GetLabels() {
			if IsSecretName(name) {
				w.Labels[name] = redacted
			}
		}
	}
}

// partitionSum is one keyspace in short.
type partitionSum struct {
	Keyspace   string         `json:"keyspace"`
	Partitions uint32         `json:"partitions"`
	Owned      int            `json:"owned"`
	Draining   int            `json:"draining"`
	Quarantine int            `json:"quarantined"`
	Owners     map[string]int `json:"owners"`  // worker to number of partitions
	Unowned    []uint32       `json:"unowned"` // the first hundred
}

// partitionSums says who owns how many, and which have no owner.
func (a *cluster) partitionSums(context.Context) ([]byte, error) {
	out := []partitionSum{}
	a.cfg.Store.View(func(s *state.State) {
		for ks := range s.Keyspaces() {
			sum := partitionSum{Keyspace: ks.Name, Partitions: ks.Partitions, Owned: ks.Owned, Draining: ks.Draining, Quarantine: ks.Quarantined, Owners: map[string]int{}, Unowned: []uint32{}}
			for p := range ks.Partitions {
				if sess, ok := s.Session(ks.Lease(p).Session); ok {
					sum.Owners[sess.Worker]++
				} else if len(sum.Unowned) < 100 {
					sum.Unowned = append(sum.Unowned, p)
				}
			}
			out = append(out, sum)
		}
	})
	return json.MarshalIndent(map[string]any{"items": out}, "", "  ")
}

// newestEvents are from this server's own state.
func (a *cluster) newestEvents(most int) *pb.ListEventsResponse {
	var found []state.Event
	var endpoints []string
	resp := &pb.ListEventsResponse{}
	a.cfg.Store.View(func(s *state.State) {
		a.names.learn(s)
		resp.Revision = s.Revision()
		newestFirst(s, func(ev *state.Event) bool {
			found = append(found, *ev)
			return len(found) < most
		})
		endpoints = endpointsOf(s, found, nil)
	})
	for i := len(found) - 1; i >= 0; i-- {
		resp.Items = append(resp.Items, (&events{API: a.API}).eventOf(&found[i], endpoints[i]))
	}
	return resp
}
