package api

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/leasehold-dev/leasehold/ownership/auth"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// The API says itself who may call what, by the option of each rpc in the protos.
var (
	_ auth.Audited = (*API)(nil)
	_ auth.Aimed   = (*API)(nil)
)

// accessOf is the rule of an rpc, or nil.
func accessOf(d protoreflect.MethodDescriptor) *pb.Access {
	if !proto.HasExtension(d.Options(), pb.E_Access) {
		return nil
	}
	rule, _ := proto.GetExtension(d.Options(), pb.E_Access).(*pb.Access)
	return rule
}

// Knows reports whether a method is one of leasehold.v1.
func (a *API) Knows(method string) bool {
	_, ok := a.methods[method]
	return ok
}

// Authorize holds a request against the rule of its rpc. What a rule calls filtered
// the handlers look at themselves, with access.FromContext.
func (a *API) Authorize(_ context.Context, id access.Identity, name string, req proto.Message) error {
	rule := a.methods[name].access
	if !slices.ContainsFunc(rule.GetRoles(), func(r pb.Role) bool { return id.Role != 0 && access.Role(r) == id.Role }) {
		return auth.Denied(id, "%s is for %s", name, rolesOf(rule))
	}
	switch {
	case rule.GetFiltered():
		return nil
	case rule.GetKeyspace() == "":
		if !id.Scope.AllKeyspaces() {
			return auth.Denied(id, "%s is about the whole cluster and wants all keyspaces", name)
		}
	case req != nil:
		return inScope(id, keyspaceIn(req, rule.GetKeyspace()))
	}
	return nil
}

// rolesOf lists who may call a method.
func rolesOf(rule *pb.Access) string {
	if len(rule.GetRoles()) == 0 {
		return "nobody"
	}
	var words []string
	for _, r := range rule.GetRoles() {
		words = append(words, access.Role(r).String())
	}
	if len(words) == 1 {
		return "the role " + words[0]
	}
	return "the roles " + strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// keyspaceIn is the value of the field of a request that names the keyspace.
func keyspaceIn(req proto.Message, field string) string {
	m := req.ProtoReflect()
	f := m.Descriptor().Fields().ByName(protoreflect.Name(field))
	if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() {
		return ""
	}
	return m.Get(f).String()
}

// inScope refuses a keyspace that the caller may not see, whether it exists or not.
// A name that none can have is for the handler to refuse, where nothing is hidden.
func inScope(id access.Identity, keyspace string) error {
	if id.Scope.Keyspace(keyspace) || keyspace == "" && id.Scope.AllKeyspaces() {
		return nil
	}
	return auth.Denied(id, "keyspace %q is not one of yours", shorten(keyspace))
}

// sees is a filter of keyspaces for the caller of ctx. Something of no keyspace is
// about the whole cluster.
func sees(ctx context.Context) func(keyspace string) bool {
	id := access.FromContext(ctx)
	if id.Scope.AllKeyspaces() {
		return func(string) bool { return true }
	}
	return id.Scope.Keyspace
}

// Changes reports whether a method's calls are in the audit log.
func (a *API) Changes(name string) bool { return a.methods[name].access.GetChanges() }

// targetFields are those that say in a request what it is about. None of them is a
// secret.
var targetFields = []protoreflect.Name{
	"keyspace", "name", "partition", "to", "id", "server_id", "store_id", "role", "credential", "digest", "expect",
}

// Target says what a request is about.
func (a *API) Target(_ string, req proto.Message) string {
	m := req.ProtoReflect()
	var words []string
	for _, name := range targetFields {
		f := m.Descriptor().Fields().ByName(name)
		switch {
		case f == nil, f.IsList(), f.IsMap(), f.Kind() == protoreflect.BytesKind, f.Kind() == protoreflect.MessageKind:
		case m.Has(f) || name == "partition":
			value := valueOf(f, m.Get(f))
			if _, _, err := access.ParseToken(value); err == nil {
				value = redacted // somebody mistook it for the name
			}
			words = append(words, fmt.Sprintf("%s=%s", name, shorten(value)))
		}
	}
	return strings.Join(words, " ")
}

func valueOf(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if f.Kind() == protoreflect.EnumKind {
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			return string(d.Name())
		}
	}
	return v.String()
}
