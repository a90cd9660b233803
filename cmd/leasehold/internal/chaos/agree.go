package chaos

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/cluster"
	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// agree compares the states of all servers when nobody changes them any more:
// each answers from its own.
func (r *runner) agree(ctx context.Context) error {
	index, err := r.settled(ctx)
	if err != nil {
		return err
	}
	first := ""
	for i, s := range r.Cluster.Servers() {
		var state string
		err := cluster.Persist(ctx, func(ctx context.Context) (err error) {
			state, err = stateOf(ctx, s)
			return err
		})
		if err != nil {
			return fmt.Errorf("read the state of %s: %w", s.ID, err)
		}
		if i == 0 {
			first = state
		} else if state != first {
			r.problem("servers differ at index %d: %s has %s, %s has %s", index, r.Cluster.Servers()[0].ID, first, s.ID, state)
		}
	}
	r.story.Note("%d servers are the same at index %d", len(r.Cluster.Servers()), index)
	return nil
}

// settled waits until all servers have applied the same entries, and no more
// come, and returns the index.
func (r *runner) settled(ctx context.Context) (uint64, error) {
	var last uint64
	for {
		same, index := true, uint64(0)
		for _, s := range r.Cluster.Servers() {
			st, err := s.Status(ctx)
			same = same && err == nil && st.GetSessions() == 0 && (index == 0 || st.GetAppliedIndex() == index)
			index = st.GetAppliedIndex()
		}
		if same && index == last {
			return index, nil
		}
		last = index
		if err := sleep(ctx, 300*time.Millisecond); err != nil {
			return 0, fmt.Errorf("wait until all servers have applied the same: %w", err)
		}
	}
}

// stateOf is what a server knows, hashed: the figures of its status, and every partition.
func stateOf(ctx context.Context, s *cluster.Server) (string, error) {
	st, err := s.Status(ctx)
	if err != nil {
		return "", err
	}
	same := &leaseholdv1.Status{
		ClusterId: st.GetClusterId(), Revision: st.GetRevision(), LastToken: st.GetLastToken(), Keyspaces: st.GetKeyspaces(),
		Sessions: st.GetSessions(), Workers: st.GetWorkers(),
	}
	list, err := leaseholdv1.NewPartitionServiceClient(s.Conn()).ListPartitions(ctx, &leaseholdv1.ListPartitionsRequest{Keyspace: demo.Keyspace, Stale: true})
	if err != nil {
		return "", err
	}
	for _, p := range list.GetItems() {
		// What is counted from the moment of the answer, and what only the
		// leader's plans know.
		p.HeldMs, p.Index, p.Reason, p.Target = 0, 0, "", ""
	}
	text := ""
	for _, m := range []proto.Message{same, list} {
		raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf("%x ", sha256.Sum256(raw))
	}
	return text, nil
}
