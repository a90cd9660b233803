package chaos

import (
	"context"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// watchThese has watchLeaders ask the servers that are there now.
func (r *runner) watchThese() {
	r.watch.Lock()
	defer r.watch.Unlock()
	r.watch.servers = nil
	for _, s := range r.Cluster.Servers() {
		r.watch.servers = append(r.watch.servers, s.Cluster())
	}
}

// watchLeaders writes down, until ctx ends, which server says that it leads in
// which term.
func (r *runner) watchLeaders(ctx context.Context) {
	seen := map[string]uint64{}
	for {
		r.watch.Lock()
		servers := r.watch.servers
		r.watch.Unlock()
		for _, c := range servers {
			asking, enough := context.WithTimeout(ctx, 500*time.Millisecond)
			st, err := c.GetStatus(asking, &leaseholdv1.GetStatusRequest{})
			enough()
			if err != nil || st.GetRaftState() != "leader" || seen[st.GetServerId()] == st.GetTerm() {
				continue
			}
			seen[st.GetServerId()] = st.GetTerm()
			r.Record.Write(demo.Record{Kind: kindLeads, Process: demo.DriverProcess, Worker: st.GetServerId(), Token: st.GetTerm()})
		}
		if sleep(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}
