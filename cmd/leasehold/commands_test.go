package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestConfirm(t *testing.T) {
	p := newPeer(t)
	for _, c := range []struct {
		answer string
		done   bool
	}{{"y\n", true}, {"YES\n", true}, {"n\n", false}, {"\n", false}, {"", false}, {"yesterday\n", false}} {
		p.asked = nil
		cmd := p.cli()
		cmd.terminal, cmd.stdin = true, c.answer
		code := cmd.run(t, "keyspace", "rm", "orders")
		if (code == exitOK) != c.done || (p.last() != nil) != c.done {
			t.Errorf("answer %q: exit %d, sent %v", c.answer, code, p.last())
		}
		if !strings.Contains(cmd.stderr.String(), `Delete keyspace "orders"?`) {
			t.Errorf("question: %s", cmd.stderr.String())
		}
	}
	// Off a terminal nothing is asked and nothing is done.
	p.asked = nil
	cmd := p.cli()
	cmd.stdin = "y\n"
	if _, errOut := cmd.want(t, exitUsage, "workers", "evict", "w2"); !strings.Contains(errOut, "--yes") || p.last() != nil {
		t.Errorf("%s, sent %v", errOut, p.last())
	}
	// What cannot hurt does not ask.
	p.cli().want(t, exitOK, "workers", "drain", "w2")
}

func TestStatusWithoutLeader(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	p.status = []*leaseholdv1.Status{{ServerId: "s1", AgeMs: 4000, NotReadyReason: "no leader"}}
	out, errOut := p.cli().want(t, exitUnreachable, "status")
	if !strings.Contains(out, "leader       none") || !strings.Contains(out, "age          4s") || !strings.Contains(errOut, "no leader") {
		t.Errorf("%s%s", out, errOut)
	}
	_, errOut = p.cli().want(t, exitUnreachable, "status", "--wait", "--timeout", "3s")
	if !strings.Contains(errOut, "waiting for a leader") {
		t.Error(errOut)
	}
}

func TestStatusWaits(t *testing.T) {
	p := newPeer(t)
	ready := p.status[0]
	p.status = []*leaseholdv1.Status{{ServerId: "s1"}, {ServerId: "s1"}, {ServerId: "s1", LeaderId: "s1", NotReadyReason: "catching up"}, ready}
	out, _ := p.cli().want(t, exitOK, "status", "--wait", "--timeout", "10s")
	if !strings.Contains(out, "ready        yes") {
		t.Error(out)
	}
}

func TestDrainWaits(t *testing.T) {
	t.Parallel()
	p := newPeer(t)
	p.held = []int64{3, 1, 0}
	out, _ := p.cli().want(t, exitOK, "workers", "drain", "w2", "--wait")
	if !strings.Contains(out, "holds 0") {
		t.Error(out)
	}
	p.held = []int64{3}
	_, errOut := p.cli().want(t, exitUnreachable, "workers", "drain", "w2", "--wait", "--timeout", "3s")
	if !strings.Contains(errOut, "still holds 3") || !strings.Contains(errOut, "--worker w2") {
		t.Error(errOut)
	}
}

// A watch that breaks is resumed where it ended: nothing is missing, nothing
// comes twice, and filters hold.
func TestEventsFollowResumes(t *testing.T) {
	p := newPeer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	watches := 0
	p.watch = func(r *leaseholdv1.WatchEventsRequest, s grpc.ServerStreamingServer[leaseholdv1.WatchEventsResponse]) error {
		watches++
		send := func(revision uint64, evs ...*leaseholdv1.Event) error {
			return s.Send(&leaseholdv1.WatchEventsResponse{Items: evs, Revision: revision})
		}
		if watches == 1 {
			if err := send(5, event(4, "grant", "orders", 17, "join"), event(5, "grant", "orders", 18, "join")); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "the server stops")
		}
		if watches == 2 {
			if err := send(6, event(6, "grant", "orders", 17, "leave")); err != nil {
				return err
			}
			return status.Error(codes.Unavailable, "this one too")
		}
		cancel() // as Ctrl-C does
		<-s.Context().Done()
		return nil
	}
	cmd := p.cli()
	cmd.ctx = ctx
	out, _ := cmd.want(t, exitOK, "events", "-f", "--keyspace", "orders", "--partition", "17", "-o", "json")
	var got []string
	d := json.NewDecoder(strings.NewReader(out))
	for {
		var ev struct {
			Revision  string
			Partition uint32
		}
		if err := d.Decode(&ev); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, ev.Revision)
	}
	if want := []string{"1", "2", "3", "4", "6"}; !slices.Equal(got, want) {
		t.Errorf("revisions %v, want %v", got, want)
	}
	var after []uint64
	for _, r := range requests[*leaseholdv1.WatchEventsRequest](p) {
		after = append(after, r.GetAfterRevision())
	}
	if !slices.Equal(after, []uint64{3, 5, 6}) {
		t.Errorf("watched after %v, want [3 5 6]", after)
	}
	if r := requests[*leaseholdv1.ListEventsRequest](p)[0]; r.GetKeyspace() != "orders" || r.Partition == nil || r.GetPartition() != 17 {
		t.Errorf("listed %v", r)
	}
}

func TestEventsFollowSaysWhenEventsAreGone(t *testing.T) {
	p := newPeer(t)
	p.watch = func(*leaseholdv1.WatchEventsRequest, grpc.ServerStreamingServer[leaseholdv1.WatchEventsResponse]) error {
		return leaseholdv1.StatusError(codes.OutOfRange, &leaseholdv1.ErrorDetail{Reason: leaseholdv1.ReasonCompacted, Message: "events up to 900 are gone", Revision: 900})
	}
	_, errOut := p.cli().want(t, exitRefused, "events", "-f")
	if !strings.Contains(errOut, "events up to 900 are gone") {
		t.Error(errOut)
	}
}

func TestEventsSince(t *testing.T) {
	p := newPeer(t)
	p.cli().want(t, exitOK, "events", "--since", "1h", "--cause", "expired", "--limit", "5")
	if r := p.last().(*leaseholdv1.ListEventsRequest); r.GetSinceMs() != 3_600_000 || r.GetCause() != "expired" || r.GetLimit() != 5 || r.Partition != nil {
		t.Errorf("sent %v", r)
	}
}

// A restore is no move from one worker to another, and stays in its columns.
func TestRestoreEventStaysInItsColumns(t *testing.T) {
	cluster := strings.Repeat("30a10831", 4)
	line := eventText(&leaseholdv1.Event{Kind: "restore", From: cluster, Token: 49418713407487, Index: 14})
	want := strings.TrimRight(fmt.Sprintf(eventLine, "", "restore", "-", "of cluster 30a1083130a1…", "49418713407487", "-", "14"), " ")
	if line != want {
		t.Errorf("got  %q\nwant %q", line, want)
	}
	line = eventText(&leaseholdv1.Event{Kind: "credential_revoke", From: "abc123abc123", Worker: "ci", Index: 15})
	want = strings.TrimRight(fmt.Sprintf(eventLine, "", "credential_revoke", "-", "ci (abc123abc123)", "-", "-", "15"), " ")
	if line != want {
		t.Errorf("got  %q\nwant %q", line, want)
	}
	line = eventText(&leaseholdv1.Event{Kind: "grant", From: "w1", Worker: "w2"})
	if !strings.Contains(line, "w1 → w2 ") {
		t.Errorf("a move: %q", line)
	}
}

// completion is what the tab key offers. It waits for a second only, which on a
// busy machine may be too short: then it is pressed again.
func completion(t *testing.T, server string, ok func(offers []string) bool, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out := ""
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		c := &cli{env: map[string]string{"LEASEHOLD_SERVER": server}}
		out, _ = c.want(t, exitOK, append([]string{"__complete"}, args...)...)
		return ok(strings.Split(out, "\n")), nil
	})
	if err != nil {
		t.Errorf("the tab key after %q offers %q", args, out)
	}
	return out
}

// The tab key asks the cluster, briefly.
func TestCompletion(t *testing.T) {
	p := newPeer(t)
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"keyspace", "show", ""}, []string{"orders", "mails"}},
		{[]string{"keyspace", "rm", ""}, []string{"orders", "mails"}},
		{[]string{"partitions", "ls", ""}, []string{"orders", "mails"}},
		{[]string{"partitions", "ls", "orders", ""}, nil},
		{[]string{"partitions", "ls", "orders", "--worker", ""}, []string{"w2"}},
		{[]string{"partitions", "move", "orders", "1", "--to", ""}, []string{"w2"}},
		{[]string{"workers", "drain", ""}, []string{"w2"}},
		{[]string{"events", "--keyspace", ""}, []string{"orders", "mails"}},
		{[]string{"status", "-o", ""}, []string{"table", "wide", "json"}},
		{[]string{"keyspace", "create", "x", "--takeover", ""}, []string{"strict", "fenced"}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish", "powershell"}},
	} {
		out := completion(t, p.addr, func(offers []string) bool {
			return !slices.ContainsFunc(c.want, func(w string) bool { return !slices.Contains(offers, w) })
		}, c.args...)
		if c.want == nil && !strings.HasPrefix(out, ":") {
			t.Errorf("%v: completed to %q", c.args, out)
		}
	}
	start := time.Now()
	out, _ := (&cli{}).want(t, exitOK, "__complete", "--server", "127.0.0.1:1", "keyspace", "show", "")
	if !strings.HasPrefix(out, ":") || time.Since(start) > 5*time.Second {
		t.Errorf("without a server: %q after %v", out, time.Since(start))
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _ := (&cli{}).want(t, exitOK, "completion", shell); !strings.Contains(out, "leasehold") {
			t.Errorf("%s: %q", shell, out)
		}
	}
}

func TestVersion(t *testing.T) {
	out, _ := (&cli{}).want(t, exitOK, "version")
	if !strings.HasPrefix(out, "leasehold ") {
		t.Error(out)
	}
	out, _ = (&cli{}).want(t, exitOK, "version", "-o", "json")
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil || v["version"] == "" || v["go"] == "" || v["feature"] != float64(state.MaxFeature) {
		t.Errorf("%v in %s", err, out)
	}
	if f, _ := v["formats"].(map[string]any); f["batch"] != 1.0 || f["snapshot"] != 1.0 || f["backup"] != 1.0 {
		t.Errorf("formats: %s", out)
	}
	human, _ := (&cli{}).want(t, exitOK, "version")
	if !strings.Contains(human, fmt.Sprintf("feature level %d, batch format 1, snapshot format 1, backup format 1", state.MaxFeature)) {
		t.Errorf("for people: %s", human)
	}
	if !strings.Contains(human, "one server at a time, the leader last") {
		t.Errorf("the order of an upgrade is not told: %s", human)
	}
}

func TestSuggestions(t *testing.T) {
	_, errOut := (&cli{}).want(t, exitUsage, "statsu")
	if !strings.Contains(errOut, "did you mean status?") {
		t.Error(errOut)
	}
	_, errOut = (&cli{}).want(t, exitUsage, "keyspace", "creat")
	if !strings.Contains(errOut, "did you mean create?") {
		t.Error(errOut)
	}
}
