package clientgo

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// tokenSession is how long the session of a draw lives at most, in seconds.
const tokenSession = 10

// Tokens draws from the cluster's counter: it takes the first place of a queue that nobody
// else stands in, and leaves it again. Three calls, once a term.
func Tokens(queues leaseholdv1.CoordinationServiceClient, leases clientv3.Lease, name string) TokenSource {
	return func(ctx context.Context) (uint64, error) {
		session, err := leases.Grant(ctx, tokenSession)
		if err != nil {
			return 0, err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = leases.Revoke(ctx, session.ID) // its TTL does the same
		}()
		r, err := queues.Acquire(ctx, &leaseholdv1.AcquireRequest{
			Name: fmt.Sprintf("%s/token/%x", name, session.ID), SessionId: uint64(session.ID), NoWait: true,
		})
		switch {
		case err != nil:
			return 0, err
		case !r.GetAcquired() || r.GetToken() == 0:
			return 0, fmt.Errorf("no token was given")
		}
		return r.GetToken(), nil
	}
}
