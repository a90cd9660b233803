package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// eventFilter is what the user wants to see.
type eventFilter struct {
	keyspace, cause string
	partition       *uint32
}

// match is for followed events; the server filters listed ones.
func (f eventFilter) match(ev *leaseholdv1.Event) bool {
	return (f.keyspace == "" || ev.GetKeyspace() == f.keyspace) &&
		(f.cause == "" || ev.GetCause() == f.cause) &&
		(f.partition == nil || ev.Partition != nil && ev.GetPartition() == *f.partition)
}

// setPartition reads --partition: orders/17, or 17 beside --keyspace.
func (f *eventFilter) setPartition(s string) error {
	keyspace, number, both := strings.Cut(s, "/")
	if !both {
		keyspace, number = f.keyspace, s
	}
	switch {
	case keyspace == "":
		return usage("--partition %s needs its keyspace: every keyspace has one; write orders/%s", s, number)
	case f.keyspace != "" && f.keyspace != keyspace:
		return usage("--partition %s is not of --keyspace %s", s, f.keyspace)
	}
	f.keyspace = keyspace
	n, err := partitionArg(number)
	f.partition = &n
	return err
}

// causeWords are the words of --cause.
func causeWords() (words []string) {
	for c := state.CauseInitial; c <= state.CauseCredentialRevoked; c++ {
		words = append(words, c.String())
	}
	return words
}

// checkCause refuses a word that no event has.
func checkCause(cause string) error {
	if cause != "" && !slices.Contains(causeWords(), cause) {
		return usage("--cause %q: want one of %s", cause, strings.Join(causeWords(), ", "))
	}
	return nil
}

func newEventsCommand(e env) *cobra.Command {
	var (
		follow    bool
		since     durationFlag
		limit     uint32
		partition string
		f         eventFilter
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Tell what happened to partitions, sessions and keyspaces, and why",
		Long: `Tell what happened, oldest first: grants, releases, expiries, drains, sessions,
keyspaces and leaders, each with its token, its cause and its Raft index. With
-f the command goes on with what happens next, across leader changes, without a
gap; with -o json it then writes one event per line.`,
		Example: `  leasehold events --since 1h
  leasehold events --since 1h --partition orders/17 --cause expired
  leasehold events -f --partition orders/17
  leasehold events -f -o json | jq -r 'select(.cause == "expired") | .worker'`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if partition != "" {
				if err := f.setPartition(partition); err != nil {
					return err
				}
			}
			if err := checkCause(f.cause); err != nil {
				return err
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			w := &eventWriter{e: e, lines: follow}
			r := &leaseholdv1.ListEventsRequest{Keyspace: f.keyspace, Cause: f.cause, Partition: f.partition, Limit: limit, SinceMs: since.ms()}
			list, err := c.Events().ListEvents(cmd.Context(), r)
			if err != nil {
				return fmt.Errorf("list events: %w", err)
			}
			if !follow && e.json() {
				return printItems(e.stdout, list.GetItems())
			}
			if err := w.write(list.GetItems()); err != nil {
				return err
			}
			if !follow {
				if len(list.GetItems()) == 0 {
					fmt.Fprintln(e.stderr, "no events")
				}
				return nil
			}
			return followEvents(cmd.Context(), e, c, f, list.GetRevision(), w)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&follow, "follow", "f", false, "go on with what happens next")
	flags.Var(&since, "since", "only what happened in the last `duration` (default all that is kept)")
	flags.Lookup("since").DefValue = ""
	flags.Uint32Var(&limit, "limit", 0, "at most this many, the newest (default 1000)")
	flags.StringVar(&f.keyspace, "keyspace", "", "only events of this keyspace")
	flags.StringVar(&partition, "partition", "", "only events of this `partition`, as orders/17; a number alone needs --keyspace")
	flags.StringVar(&f.cause, "cause", "", "only events with this cause, for example expired")
	complete(cmd, "keyspace", flagNames(e, keyspaceNames))
	complete(cmd, "cause", fixed(causeWords()...))
	complete(cmd, "partition", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		if f.keyspace != "" {
			return completePlace(e)(cmd, []string{f.keyspace}, begun)
		}
		return completePlace(e)(cmd, nil, begun)
	})
	return cmd
}

// followEvents writes what comes after a revision until ctx ends. A watch that
// breaks is resumed from the last revision seen, at whichever server answers.
func followEvents(ctx context.Context, e env, c *client.Client, f eventFilter, after uint64, w *eventWriter) error {
	for {
		next, err := watchOnce(ctx, e, c, f, after, w)
		after = next
		switch {
		case ctx.Err() != nil:
			// Being stopped is how a follower ends.
			return nil
		case client.Detail(err).GetReason() == leaseholdv1.ReasonCompacted:
			return &hintError{fmt.Errorf("follow events after revision %d: %w", after, err), "leasehold events -f"}
		case status.Code(err) == codes.Unavailable || client.Detail(err).Retryable():
			if e.isTerminal(e.stderr) {
				fmt.Fprintf(e.stderr, "leasehold: the watch broke (%s), resuming after revision %d\n", message(err), after)
			}
			t := time.NewTimer(250 * time.Millisecond)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
			}
		default:
			return fmt.Errorf("follow events: %w", err)
		}
	}
}

func watchOnce(ctx context.Context, e env, c *client.Client, f eventFilter, after uint64, w *eventWriter) (uint64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.Events().WatchEvents(ctx, &leaseholdv1.WatchEventsRequest{AfterRevision: after, Keyspace: f.keyspace})
	if err != nil {
		var unreachable *client.UnreachableError
		if errors.As(err, &unreachable) {
			return after, fmt.Errorf("%w", err) // the client has waited long enough
		}
		return after, err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return after, err
		}
		var matching []*leaseholdv1.Event
		for _, ev := range m.GetItems() {
			if f.match(ev) {
				matching = append(matching, ev)
			}
		}
		if err := w.write(matching); err != nil {
			return after, err
		}
		after = max(after, m.GetRevision())
	}
}

// eventWriter writes events in columns that do not depend on what comes later.
type eventWriter struct {
	e      env
	lines  bool // json: one object per line
	headed bool
}

const eventLine = "%-24s  %-14s  %-20s  %-24s  %-16s  %-13s  %s"

func (w *eventWriter) write(events []*leaseholdv1.Event) error {
	for _, ev := range events {
		if w.e.json() {
			if err := printLine(w.e.stdout, ev); err != nil {
				return err
			}
			continue
		}
		if !w.headed {
			w.headed = true
			if err := w.e.say("%s", strings.TrimRight(fmt.Sprintf(eventLine, "TIME", "EVENT", "WHERE", "WHO", "TOKEN", "CAUSE", "INDEX"), " ")); err != nil {
				return err
			}
		}
		if err := w.e.say("%s", eventText(ev)); err != nil {
			return err
		}
	}
	return nil
}

// cut shortens s to its first n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}

func eventText(ev *leaseholdv1.Event) string {
	where := ev.GetKeyspace()
	if ev.Partition != nil {
		where = fmt.Sprintf("%s/%d", where, ev.GetPartition())
	}
	who := eventWho(ev)
	if strings.HasPrefix(ev.GetKind(), "credential_") {
		who = fmt.Sprintf("%s (%s)", ev.GetWorker(), ev.GetFrom())
	}
	if ev.GetFrom() != "" && who == "" { // the cluster that was restored; -o json has all of its id
		who = "of cluster " + cut(ev.GetFrom(), 12)
	}
	return strings.TrimRight(fmt.Sprintf(eventLine, eventTime(ev), cell(ev.GetKind()), cell(where), cell(who), cell(tokenText(ev.GetToken())), cell(ev.GetCause()), number(ev.GetIndex())), " ")
}
