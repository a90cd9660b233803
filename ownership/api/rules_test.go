package api

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

var update = flag.Bool("update", false, "rewrite the text files that tests compare with")

// rpcs yields the descriptor of every rpc of the API.
func rpcs() (all []protoreflect.MethodDescriptor) {
	services := pb.File_ownership_leaseholdv1_leasehold_proto.Services()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			all = append(all, methods.Get(j))
		}
	}
	return all
}

// Who may call what, for people to read: a change shows in a review.
func TestAccessTable(t *testing.T) {
	var b strings.Builder
	for _, d := range rpcs() {
		rule := accessOf(d)
		if rule == nil {
			t.Errorf("%s has no option access", d.FullName())
			continue
		}
		var roles []string
		for _, r := range rule.GetRoles() {
			roles = append(roles, access.Role(r).String())
		}
		slices.Sort(roles)
		about := "the whole cluster"
		switch {
		case rule.GetFiltered():
			about = "what the caller may see"
		case rule.GetKeyspace() != "":
			about = "the keyspace in " + rule.GetKeyspace()
		}
		changes := ""
		if rule.GetChanges() {
			changes = "audited"
		}
		line := fmt.Sprintf("%-36s  %-32s  %-24s  %s", d.Parent().Name()+"."+d.Name(), strings.Join(roles, " "), about, changes)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	const file = "testdata/access.txt"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("who may call what has changed; go test -run TestAccessTable -update ./ownership/api rewrites %s:\n%s", file, b.String())
	}
}

// The numbers of roles in the protos are those of package access.
func TestRolesAreTheSame(t *testing.T) {
	values := pb.Role(0).Descriptor().Values()
	for i := range values.Len() {
		v := values.Get(i)
		word := strings.ToLower(strings.TrimPrefix(string(v.Name()), "ROLE_"))
		if v.Number() == 0 {
			word = "none"
		}
		if got := access.Role(v.Number()).String(); got != word {
			t.Errorf("%s is %q", v.Name(), got)
		}
	}
	if values.Len() != 5 {
		t.Errorf("%d roles", values.Len())
	}
}

// A rule names a field that there is, and no request that has a keyspace escapes.
func TestRulesFitTheirRequests(t *testing.T) {
	for _, d := range rpcs() {
		rule := accessOf(d)
		if rule.GetFiltered() && rule.GetKeyspace() != "" {
			t.Errorf("%s: both filtered and of one keyspace", d.FullName())
		}
		if name := rule.GetKeyspace(); name != "" {
			f := d.Input().Fields().ByName(protoreflect.Name(name))
			if f == nil || f.Kind() != protoreflect.StringKind || f.IsList() || d.IsStreamingClient() {
				t.Errorf("%s: %s is no field with a name", d.FullName(), name)
			}
		}
		if d.Input().Fields().ByName("keyspace") != nil && rule.GetKeyspace() == "" && !rule.GetFiltered() {
			t.Errorf("%s: its request has a keyspace, of which the rule says nothing", d.FullName())
		}
		if len(rule.GetRoles()) == 0 || slices.Contains(rule.GetRoles(), pb.Role_ROLE_UNSPECIFIED) {
			t.Errorf("%s: roles %v", d.FullName(), rule.GetRoles())
		}
		if rule.GetChanges() && slices.Contains(rule.GetRoles(), pb.Role_ROLE_READER) {
			t.Errorf("%s: a reader changes something", d.FullName())
		}
	}
}

// Nobody may call anything; a method without a rule nobody may call.
func TestNobodyMayCallAnything(t *testing.T) {
	methods, err := methodTable()
	if err != nil {
		t.Fatal(err)
	}
	a := &API{methods: methods}
	for name, m := range methods {
		req := m.in.New().Interface()
		for _, id := range []access.Identity{{}, {Source: access.Certificate, Name: "x", Role: 9, Scope: access.Everywhere()}} {
			if err := a.Authorize(context.Background(), id, name, req); pb.ReasonOf(err) != pb.ReasonDenied {
				t.Errorf("%s: %v may: %v", name, id, err)
			}
		}
	}
	methods["/leasehold.v1.New/Method"] = method{}
	if err := a.Authorize(context.Background(), access.Anybody(), "/leasehold.v1.New/Method", &pb.GetStatusRequest{}); pb.ReasonOf(err) != pb.ReasonDenied {
		t.Errorf("a method without a rule: %v", err)
	}
}

func TestTargetTellsNoSecret(t *testing.T) {
	a := &API{}
	token := access.Token("aaaaaaaaaaa1", make([]byte, access.SecretLen))
	if got := a.Target("", &pb.RevokeCredentialRequest{Credential: token}); strings.Contains(got, token[20:]) || !strings.HasPrefix(got, "credential=") {
		t.Errorf("target %q", got)
	}
	if got := a.Target("", &pb.AddGossipKeyRequest{Key: []byte("0123456789abcdef")}); got != "" {
		t.Errorf("target %q", got)
	}
	if got := a.Target("", &pb.MovePartitionRequest{Keyspace: "orders", To: "w1"}); got != "keyspace=orders partition=0 to=w1" {
		t.Errorf("target %q", got)
	}
}
