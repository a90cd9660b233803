package auth

import (
	"context"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Rules say who may do what in one API.
type Rules interface {
	// Knows reports whether a method (/package.Service/Method) is one of the API.
	Knows(method string) bool
	// Authorize refuses a request that the identity may not make, with the status
	// that the API's callers expect (see Denied). At the beginning of a stream req
	// is nil; then it is asked once for each message that comes in.
	Authorize(ctx context.Context, id access.Identity, method string, req proto.Message) error
}

// Audited are Rules of an API whose changes are in the audit log.
type Audited interface {
	Rules
	// Changes reports whether a method changes something worth an entry.
	Changes(method string) bool
}

// Aimed are Rules that can tell the audit log what a request is about.
type Aimed interface {
	Rules
	// Target says in few words what a request is about: "keyspace=orders
	// partition=3". It never has a secret, nor a value that a caller stores.
	Target(method string, req proto.Message) string
}

// Spoken are Rules of an API whose callers know other words for somebody who could
// not prove who they are.
type Spoken interface {
	Rules
	// Unauthenticated turns the refusal of a call into the API's own. err is a
	// status with a leaseholdv1.ErrorDetail, whose reason is unauthenticated or
	// limited; nothing tells that the caller has presented nothing at all.
	Unauthenticated(method string, nothing bool, err error) error
}

// asked is who a method wants to have found out.
type asked int

const (
	unknownMethod asked = iota // refused
	nobodyAsked                // no proof is needed
	anyProof                   // anybody who has proven who they are
	byRules                    // the rules decide
)

// needs tells what a method wants, and of whose rules it is.
func (a *Auth) needs(method string) (asked, Rules) {
	for _, r := range a.cfg.Rules {
		if r.Knows(method) {
			if method == authenticateMethod {
				return nobodyAsked, r
			}
			return byRules, r
		}
	}
	switch {
	case method == grpc_health_v1.Health_Check_FullMethodName:
		return nobodyAsked, nil
	case strings.HasPrefix(method, "/grpc.reflection."), strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/"):
		return anyProof, nil
	}
	return unknownMethod, nil
}

// authenticateMethod is how a client of etcd turns a name and a password into a
// token: it has no other proof yet.
const authenticateMethod = "/etcdserverpb.Auth/Authenticate"

// authorize asks the rules about one message.
func (a *Auth) authorize(ctx context.Context, id access.Identity, method string, req proto.Message) error {
	needs, rules := a.needs(method)
	switch {
	case needs == nobodyAsked:
		return nil
	case needs == unknownMethod:
		return Denied(id, "method %s is not one that anybody may call", method)
	case id.Role == 0:
		return errNone.status()
	case needs == anyProof:
		return nil
	}
	return rules.Authorize(ctx, id, method, req)
}

// changes reports whether a method has an entry in the audit log whatever comes of
// it, and target what its request is about.
func (a *Auth) changes(method string) bool {
	_, rules := a.needs(method)
	audited, ok := rules.(Audited)
	return ok && audited.Changes(method)
}

func (a *Auth) target(method string, req proto.Message) string {
	_, rules := a.needs(method)
	aimed, ok := rules.(Aimed)
	if !ok || req == nil {
		return ""
	}
	return aimed.Target(method, req)
}
