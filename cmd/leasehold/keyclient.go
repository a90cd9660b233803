package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// keyClient talks to the key store: in etcd's dialect for keys, in the native one
// for queues and numbers.
type keyClient struct {
	*clientv3.Client
	native *client.Client
}

// keys makes a client of the key store, of the servers that answer; and of all
// others too if it is to live long.
func (e env) keys(ctx context.Context, long bool) (*keyClient, error) {
	native, err := e.connect()
	if err != nil {
		return nil, err
	}
	// Whether anybody answers is asked the way all commands do.
	_, err = native.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
	var answered, silent []string
	if err == nil {
		answered, silent, err = native.Survey(ctx)
	}
	if err != nil {
		native.Close()
		return nil, err
	}
	if long {
		answered = append(answered, silent...)
		native.Close()
		if native, err = e.connectFor(0); err != nil {
			return nil, err
		}
	}
	tls, credential, err := e.security()
	if err != nil {
		native.Close()
		return nil, err
	}
	var opts []grpc.DialOption
	if credential != nil {
		opts = append(opts, credential.DialOption())
	}
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            answered,
		TLS:                  tls,
		DialOptions:          opts,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		MaxCallSendMsgSize:   2 * maxValue, // what is too large is for the servers to say
		Logger:               zap.NewNop(),
	})
	if err != nil {
		native.Close()
		return nil, usage("--server: %v", err)
	}
	return &keyClient{c, native}, nil
}

// Close ends both.
func (c *keyClient) Close() {
	_ = c.Client.Close() // says only that it was cancelled
	c.native.Close()
}

// withKeys runs do with a client of the key store and a context that ends with
// --timeout.
func (e env) withKeys(ctx context.Context, do func(context.Context, *keyClient) error) error {
	c, err := e.keys(ctx, false)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, e.flags.timeout.d)
	defer cancel()
	err = do(ctx, c)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return c.leaderless(ctx, err)
	}
	return err
}

// leaderless adds to the error of a call that nobody has answered in time that there
// is no leader, if that is so. Of ctx it takes the values alone: its time is over.
func (c *keyClient) leaderless(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if r, asked := c.native.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{}); asked != nil || r.GetLeaderId() != "" {
		return err
	}
	return fmt.Errorf("%w; the cluster has no leader", err)
}

// keyReadError gives an error of the etcd dialect its exit code.
func keyReadError(doing string, err error) error {
	err = rpctypes.Error(err) // one that did not come through clientv3
	text := strings.TrimPrefix(err.Error(), "etcdserver: ")
	code, ok := exitByCode[codeOf(err)]
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, rpctypes.ErrCompacted):
		return &codedError{exitRefused, &hintError{fmt.Errorf("%s: %s", doing, text), "read without --rev: what is there now is kept"}}
	case errors.Is(err, rpctypes.ErrNoSpace):
		return &codedError{exitRefused, &hintError{fmt.Errorf("%s: %s", doing, text), "leasehold doctor; delete keys, then leasehold kv compact and kv disarm: deploy/COORDINATION.md, limits"}}
	case errors.Is(err, rpctypes.ErrRequestTooLarge):
		return &codedError{exitUsage, fmt.Errorf("%s: %s: at most 1.5 MiB, with the key", doing, text)}
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return &codedError{exitNotFound, &hintError{fmt.Errorf("%s: there is no such session: it has ended, or its time has run out", doing), "leasehold session --help"}}
	case errors.Is(err, context.DeadlineExceeded), codeOf(err) == codes.DeadlineExceeded:
		return &codedError{exitUnreachable, &hintError{fmt.Errorf("%s: no answer within --timeout", doing), "leasehold status --wait"}}
	case codeOf(err) == codes.PermissionDenied:
		return &codedError{exitDenied, &hintError{fmt.Errorf("%s: %s", doing, text), accessStep(leaseholdv1.ReasonDenied)}}
	case codeOf(err) == codes.Unauthenticated:
		return &codedError{exitDenied, &hintError{fmt.Errorf("%s: %s", doing, text), accessStep(leaseholdv1.ReasonUnauthenticated)}}
	case codeOf(err) == codes.Unavailable:
		return &codedError{exitUnreachable, &hintError{fmt.Errorf("%s: %s", doing, text), "leasehold status --wait"}}
	case !ok:
		code = exitFailed
	}
	return &codedError{code, fmt.Errorf("%s: %s", doing, text)}
}

// keyWriteError does so for a change, which may have been done although no answer
// came.
func keyWriteError(doing, method string, err error) error {
	lost := codeOf(err) == codes.Unavailable || codeOf(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
	if lost && !errors.Is(err, rpctypes.ErrNoLeader) && !strings.Contains(err.Error(), "not all servers") && !strings.Contains(err.Error(), "Error while dialing") {
		return fmt.Errorf("%s: %w", doing, &client.UnknownOutcomeError{Method: method, Err: err})
	}
	return keyReadError(doing, err)
}

// codeOf is the gRPC code of an error of clientv3, which has types of its own.
func codeOf(err error) codes.Code {
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		return etcd.Code()
	}
	return status.Code(err)
}

// sessionID reads the value of --session, as LEASEHOLD_SESSION has it.
func sessionID(s string) (clientv3.LeaseID, error) {
	if s == "" {
		return clientv3.NoLease, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, usage("--session %q: want a number above 0, as LEASEHOLD_SESSION has it", s)
	}
	return clientv3.LeaseID(n), nil
}

// keyArg wants a key.
func keyArg(key string) error {
	if key == "" {
		return usage("KEY is empty")
	}
	return nil
}

// rangeOf turns KEY and --prefix into options; the empty prefix is everything.
func rangeOf(prefix bool, opts ...clientv3.OpOption) []clientv3.OpOption {
	if prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	return opts
}

// completeKeys completes the first argument with keys that begin with what is
// there already.
func completeKeys(ctx context.Context, c *client.Client) ([]string, error) {
	answered, _, err := c.Survey(ctx)
	if err != nil {
		return nil, err
	}
	cc, err := c.Open(answered[0])
	if err != nil {
		return nil, err
	}
	defer cc.Close()
	r, err := pb.NewKVClient(cc).Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, KeysOnly: true, Limit: maxCompleted, Serializable: true})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, kv := range r.GetKvs() {
		if name := string(kv.GetKey()); cell(name) == name && name != "-" {
			names = append(names, name)
		}
	}
	return names, nil
}

// maxCompleted is how many keys a shell is offered.
const maxCompleted = 1000
