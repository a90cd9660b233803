package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// What the commands of membership send, word for word.
func TestMembershipRequests(t *testing.T) {
	p := newPeer(t)
	for line, want := range map[string]proto.Message{
		"cluster init --expect 3":                   &leaseholdv1.InitClusterRequest{Expect: 3},
		"raft add s4":                               &leaseholdv1.AddPeerRequest{ServerId: "s4"},
		"raft add s4 --grpc-addr [::1]:7400":        &leaseholdv1.AddPeerRequest{ServerId: "s4", GrpcAddr: "[::1]:7400"},
		"raft promote s4":                           &leaseholdv1.PromotePeerRequest{ServerId: "s4"},
		"raft remove s4 --yes":                      &leaseholdv1.RemovePeerRequest{ServerId: "s4"},
		"raft remove s4 --yes --force --store abcd": &leaseholdv1.RemovePeerRequest{ServerId: "s4", StoreId: "abcd", Force: true},
		"raft transfer":                             &leaseholdv1.TransferLeadershipRequest{},
		"raft transfer s3":                          &leaseholdv1.TransferLeadershipRequest{ServerId: "s3"},
	} {
		p.cli().want(t, exitOK, strings.Fields(line)...)
		if got := p.last(); !proto.Equal(got, want) {
			t.Errorf("%s sends %v, want %v", line, got, want)
		}
	}
}

// A removal can hurt: without a terminal to ask on it wants --yes, and on one
// the answer decides.
func TestRemoveServerAsks(t *testing.T) {
	p := newPeer(t)
	if _, errOut := p.cli().want(t, exitUsage, "raft", "remove", "s2"); !strings.Contains(errOut, "--yes") || p.last() != nil {
		t.Errorf("%s, sent %v", errOut, p.last())
	}
	cmd := p.cli()
	cmd.terminal, cmd.stdin = true, "n\n"
	if code := cmd.run(t, "raft", "remove", "s2"); code != exitFailed || p.last() != nil || !strings.Contains(cmd.stderr.String(), "cannot come back") {
		t.Errorf("exit %d, sent %v:\n%s", code, p.last(), cmd.stderr.String())
	}
}

// Scripts tell by the exit code that a cluster exists already, and that
// nothing was changed.
func TestMembershipRefusals(t *testing.T) {
	p := newPeer(t)
	p.refuseWith(codes.AlreadyExists, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonExists, Message: "server s2 belongs to cluster c0ffee"})
	if _, errOut := p.cli().want(t, exitRefused, "cluster", "init", "--expect", "3"); !strings.Contains(errOut, "c0ffee") {
		t.Error(errOut)
	}
	p.refuseWith(codes.Aborted, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonConflict, Message: "1 of 2 voters would be left"})
	for _, line := range []string{"raft remove s2 --yes", "raft add s4", "raft promote s4", "raft transfer s4"} {
		if _, errOut := p.cli().want(t, exitRefused, strings.Fields(line)...); !strings.Contains(errOut, "1 of 2 voters") {
			t.Errorf("%s: %s", line, errOut)
		}
	}
	for _, line := range []string{"cluster init", "cluster init --expect 10", "cluster init --expect x", "raft transfer s1 s2", "raft add", "raft promote", "raft remove --yes"} {
		p.cli().want(t, exitUsage, strings.Fields(line)...)
	}
	// A variable that a script has not set is not any voter.
	if _, errOut := p.cli().want(t, exitUsage, "raft", "transfer", ""); !strings.Contains(errOut, "SERVER is empty") {
		t.Error(errOut)
	}
	p.refuseWith(codes.NotFound, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonNotFound, Field: "server_id", Message: "no such server"})
	if _, errOut := p.cli().want(t, exitNotFound, "raft", "promote", "s9"); !strings.Contains(errOut, "next: leasehold raft peers") {
		t.Error(errOut)
	}
}

func TestServerIDsAreCompleted(t *testing.T) {
	p := newPeer(t)
	for _, line := range []string{"raft promote", "raft remove", "raft transfer"} {
		completion(t, p.addr, func(got []string) bool { return slices.Contains(got, "s1") && slices.Contains(got, "s4") }, append(strings.Fields(line), "")...)
	}
}
