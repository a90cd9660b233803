package api

import (
	"context"
	"strconv"
	"time"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// keyspaces is KeyspaceService.
type keyspaces struct {
	pb.UnimplementedKeyspaceServiceServer
	*API
}

func (a *keyspaces) CreateKeyspace(ctx context.Context, r *pb.CreateKeyspaceRequest) (*pb.Keyspace, error) {
	if err := checkName("name", r.GetName()); err != nil {
		return nil, err
	}
	if err := checkPartitions("partitions", r.GetPartitions()); err != nil {
		return nil, err
	}
	if err := a.checkTTL("ttl_ms", r.GetTtlMs()); err != nil {
		return nil, err
	}
	set := state.DefaultSettings()
	set.InitialDelay = a.cfg.InitialDelay
	ttl, takeover := r.GetTtlMs(), r.GetTakeover()
	if err := a.settle(&set, &ttl, &takeover, r.HandoffTimeoutMs, r.RestartGraceMs, r.InitialDelayMs); err != nil {
		return nil, err
	}
	return a.change(ctx, r.GetName(), &state.CreateKeyspace{Name: r.GetName(), Partitions: r.GetPartitions(), Settings: set})
}

func (a *keyspaces) UpdateKeyspace(ctx context.Context, r *pb.UpdateKeyspaceRequest) (*pb.Keyspace, error) {
	var set state.Settings
	var stored uint32
	if err := a.find(ctx, r.GetName(), func(_ *state.State, ks *state.Keyspace) { set, stored = ks.Settings, ks.Partitions }); err != nil {
		return nil, err
	}
	if r.Partitions != nil && r.GetPartitions() != stored {
		return nil, invalid("partitions", strconv.FormatUint(uint64(r.GetPartitions()), 10),
			"keyspace "+r.GetName()+" has "+strconv.FormatUint(uint64(stored), 10)+" for ever: keys would move; create another keyspace instead")
	}
	if err := a.settle(&set, r.TtlMs, r.Takeover, r.HandoffTimeoutMs, r.RestartGraceMs, r.InitialDelayMs); err != nil {
		return nil, err
	}
	return a.change(ctx, r.GetName(), &state.UpdateKeyspace{Name: r.GetName(), Settings: set})
}

// settle checks what is given and puts it into set.
func (a *keyspaces) settle(set *state.Settings, ttl *int64, takeover *pb.Takeover, handoff, grace, delay *int64) error {
	if ttl != nil {
		if err := a.checkTTL("ttl_ms", *ttl); err != nil {
			return err
		}
		set.TTL = time.Duration(*ttl) * time.Millisecond
	}
	if takeover != nil {
		switch *takeover {
		case pb.Takeover_TAKEOVER_UNSPECIFIED, pb.Takeover_TAKEOVER_STRICT:
			set.Takeover = state.Strict
		case pb.Takeover_TAKEOVER_FENCED:
			set.Takeover = state.Fenced
		default:
			return invalid("takeover", strconv.Itoa(int(*takeover)), "want TAKEOVER_STRICT or TAKEOVER_FENCED")
		}
	}
	for _, f := range []struct {
		field     string
		value     *int64
		low, high time.Duration
		to        *time.Duration
	}{
		{"handoff_timeout_ms", handoff, minHandoffTimeout, state.MaxHandoffTimeout, &set.HandoffTimeout},
		{"restart_grace_ms", grace, 0, state.MaxRestartGrace, &set.RestartGrace},
		{"initial_delay_ms", delay, 0, maxInitialDelay, &set.InitialDelay},
	} {
		if f.value == nil {
			continue
		}
		if err := checkMillis(f.field, *f.value, f.low, f.high); err != nil {
			return err
		}
		*f.to = time.Duration(*f.value) * time.Millisecond
	}
	return nil
}

// change proposes one command and answers with the keyspace as it is then.
func (a *keyspaces) change(ctx context.Context, name string, cmd state.Command) (*pb.Keyspace, error) {
	if err := a.propose(ctx, cmd); err != nil {
		return nil, err
	}
	var m *pb.Keyspace
	a.cfg.Store.View(func(s *state.State) {
		if ks, ok := s.KeyspaceByName(name); ok {
			m = keyspaceOf(ks)
		}
	})
	if m == nil {
		return nil, notFound("keyspace", "name", name) // deleted meanwhile
	}
	return m, nil
}

func (a *keyspaces) GetKeyspace(ctx context.Context, r *pb.GetKeyspaceRequest) (m *pb.Keyspace, err error) {
	err = a.look(ctx, r.GetStale(), "name", r.GetName(), func(_ *state.State, ks *state.Keyspace) { m = keyspaceOf(ks) })
	return m, err
}

func (a *keyspaces) ListKeyspaces(ctx context.Context, r *pb.ListKeyspacesRequest) (*pb.ListKeyspacesResponse, error) {
	resp := &pb.ListKeyspacesResponse{}
	visible := sees(ctx)
	err := a.read(ctx, r.GetStale(), func(s *state.State) {
		for ks := range s.Keyspaces() {
			if visible(ks.Name) {
				resp.Items = append(resp.Items, keyspaceOf(ks))
			}
		}
	})
	return resp, err
}

func (a *keyspaces) DeleteKeyspace(ctx context.Context, r *pb.DeleteKeyspaceRequest) (*pb.DeleteKeyspaceResponse, error) {
	if err := checkName("name", r.GetName()); err != nil {
		return nil, err
	}
	if err := a.propose(ctx, &state.DeleteKeyspace{Name: r.GetName()}); err != nil {
		return nil, err
	}
	return &pb.DeleteKeyspaceResponse{}, nil
}

func (a *keyspaces) find(ctx context.Context, name string, fn func(*state.State, *state.Keyspace)) error {
	return a.look(ctx, false, "name", name, fn)
}

func keyspaceOf(ks *state.Keyspace) *pb.Keyspace {
	return &pb.Keyspace{
		Id: uint32(ks.ID), Name: ks.Name, Partitions: ks.Partitions, Deleting: ks.Deleting,
		TtlMs: ks.Settings.TTL.Milliseconds(), Takeover: takeoverOf(ks.Settings.Takeover),
		HandoffTimeoutMs: ks.Settings.HandoffTimeout.Milliseconds(),
		RestartGraceMs:   ks.Settings.RestartGrace.Milliseconds(),
		InitialDelayMs:   ks.Settings.InitialDelay.Milliseconds(),
		Status:           statusOf(ks),
	}
}

func statusOf(ks *state.Keyspace) *pb.KeyspaceStatus {
	return &pb.KeyspaceStatus{
		Name: ks.Name, Partitions: int64(ks.Partitions), Owned: int64(ks.Owned), Draining: int64(ks.Draining),
		Unowned: int64(ks.Partitions) - int64(ks.Owned), Quarantined: int64(ks.Quarantined),
	}
}

func takeoverOf(t state.Takeover) pb.Takeover {
	if t == state.Fenced {
		return pb.Takeover_TAKEOVER_FENCED
	}
	return pb.Takeover_TAKEOVER_STRICT
}
