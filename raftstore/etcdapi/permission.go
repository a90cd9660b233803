package etcdapi

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// permission is a row of the table of who may call a method.
type permission struct {
	// roles that may; none: everybody, also who has proven nothing.
	roles []access.Role
	// all is what the caller's scope must have all of.
	all extent
	// keys reports whether a request asks only for what lies in the scope of its
	// caller. nil: it names no keys.
	keys func(id access.Identity, req proto.Message) error
	// changes: it changes something worth an entry in the log of who did what.
	// Writes of keys are not: they are what the store is for.
	changes bool
}

// extent is what a method concerns beside the keys that it names.
type extent uint8

const (
	noExtent     extent = iota
	wholeStore          // the store of keys as a whole
	wholeCluster        // the cluster as a whole
)

func (e extent) in(s access.Scope) bool {
	switch e {
	case wholeStore:
		return s.AllKeys()
	case wholeCluster:
		return s.AllKeys() && s.AllKeyspaces()
	}
	return true
}

// Knows reports whether a method, as in /etcdserverpb.KV/Range, is one of those
// that Register adds.
func (a *API) Knows(method string) bool {
	_, ok := a.permissions[method]
	return ok
}

// Authorize refuses a call that its caller may not make, with etcd's own errors.
// At the beginning of a stream req is nil; then it is asked once for each message
// that comes in.
//
// It comes before wholeCluster else that may be wrong with a request, and looks at
// nothing but the request: a refusal tells nothing of what exists, and somebody who
// may not touch a key does not learn either whether the request was well formed.
// Two things are left to the handlers. Whose a lease is, only the leader knows for
// sure (owner.go). And the keys of a watch are looked at where it is created, since
// a refused watch must leave the others of its stream alone, as in etcd.
func (a *API) Authorize(_ context.Context, id access.Identity, method string, req proto.Message) error {
	p, ok := a.permissions[method]
	switch {
	case !ok:
		return denied(id, method, "a method that there is")
	case len(p.roles) == 0, id.Source == access.Open && id.Role != 0:
		return nil
	case id.Role == 0:
		return rpctypes.ErrGRPCUserEmpty
	case !slices.Contains(p.roles, id.Role):
		return denied(id, method, "another role")
	case !p.all.in(id.Scope):
		return denied(id, method, "all keys, and all keyspaces if it concerns the cluster")
	case p.keys == nil || req == nil:
		return nil
	}
	return p.keys(id, req)
}

// Changes reports whether a method changes something worth an entry in the log of
// who did what.
func (a *API) Changes(method string) bool { return a.permissions[method].changes }

// errDenied is the refusal of what an identity may not do; clients compare its text.
var errDenied = rpctypes.ErrGRPCPermissionDenied

// denied is errDenied with what would be needed, in the details of the status.
func denied(id access.Identity, what, needs string) error {
	return withInfo(errDenied, "DENIED", map[string]string{"caller": id.String(), "what": what, "needs": needs})
}
