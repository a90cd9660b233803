package server

import (
	"context"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// openAuth comes after the APIs, whose rules it asks.
func (s *Server) openAuth() {
	s.auth = auth.New(auth.Config{
		Rules:  []auth.Rules{s.api, keyRules{}},
		Logger: s.log, Metrics: s.metrics,
	})
}

// keyRules let everybody use the etcd API where nobody is asked who they are, and
// nobody else.
type keyRules struct{}

func (keyRules) Knows(method string) bool {
	for _, prefix := range []string{"/etcdserverpb.", "/v3lockpb.", "/v3electionpb.", "/leasehold.relay.v1."} {
		if strings.HasPrefix(method, prefix) {
			return true
		}
	}
	return false
}

func (keyRules) Authorize(_ context.Context, id access.Identity, method string, _ proto.Message) error {
	if id.Source == access.Open {
		return nil
	}
	return auth.Denied(id, "%s is for servers without TLS", method)
}
