package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type kvWatchFlags struct {
	prefix bool
	rev    int64
	limit  int
	until  untilFlag
}

func newKVWatchCommand(e env) *cobra.Command {
	var w kvWatchFlags
	cmd := &cobra.Command{
		Use:   "watch KEY",
		Short: "Tell what happens to a key, or to all that begin with KEY, as it happens",
		Long: `Print a line for each change: revision, put or delete, key and value, with tabs between.
With -o json each line is an Event of etcd's. It begins with what comes next, or with the
revision of --rev, and goes on over lost connections and dead servers: nothing is missing
and nothing comes twice. It ends when it is stopped, or after --limit changes.

With --until it prints nothing and returns as soon as the key, or any key that begins with
KEY, is there (present), none is (absent), or at least so many are (a number). That is
what a barrier waits for.

Exit code 5 means that the changes from that revision on are not kept any more: read what
is there and watch from then on.`,
		Example: `  leasehold kv watch config/ --prefix
  leasehold kv watch config/limit --rev 41 -o json
  leasehold kv watch jobs/barrier --until absent && ./start.sh
  leasehold kv watch ready/ --prefix --until 3`,
		Args:              exactArgs("KEY"),
		ValidArgsFunction: completeArgs(e, completeKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.check(args[0]); err != nil {
				return err
			}
			c, err := e.keys(cmd.Context(), true)
			if err != nil {
				return err
			}
			defer c.Close()
			if w.until.want != 0 {
				return w.await(cmd.Context(), c, args[0])
			}
			return w.follow(cmd.Context(), e, c, args[0])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&w.prefix, "prefix", false, "all keys that begin with KEY")
	f.Int64Var(&w.rev, "rev", 0, "begin with the changes of this `revision` (default what comes next)")
	f.IntVar(&w.limit, "limit", 0, "end after so many changes (default never)")
	f.Var(&w.until, "until", "return when the key is present, is absent, or that number of keys are there")
	complete(cmd, "until", fixed("present", "absent"))
	return cmd
}

// untilFlag is present, absent, or a number of keys.
type untilFlag struct {
	text string
	want int64 // the least number of keys; -1: none; 0: the flag was not given
}

// String implements pflag.Value.
func (u *untilFlag) String() string { return u.text }

// Type implements pflag.Value.
func (*untilFlag) Type() string { return "what" }

// Set implements pflag.Value.
func (u *untilFlag) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case s == "present":
		n = 1
	case s == "absent":
		n = -1
	case err != nil || n < 1:
		return fmt.Errorf("want present, absent or a number from 1")
	}
	u.text, u.want = s, n
	return nil
}

func (w *kvWatchFlags) check(key string) error {
	switch {
	case key == "" && !w.prefix:
		return usage("KEY is empty: with --prefix that means all keys")
	case w.rev < 0:
		return usage("--rev %d: want a revision from 1", w.rev)
	case w.limit < 0:
		return usage("--limit %d: want a number from 1", w.limit)
	case w.until.want != 0 && (w.rev != 0 || w.limit != 0):
		return usage("--until says when to end: not with --rev or --limit")
	case w.until.want > 1 && !w.prefix:
		return usage("--until %s: one key is never more than one, want --prefix", w.until.text)
	}
	return nil
}

// follow prints changes until ctx ends, which is how a follower ends.
func (w *kvWatchFlags) follow(ctx context.Context, e env, c *keyClient, key string) error {
	left := w.limit
	err := watchKeys(ctx, c, key, w.prefix, w.rev, func(events []*mvccpb.Event) (bool, error) {
		for _, ev := range events {
			if err := printEvent(e, ev); err != nil {
				return true, err
			}
			if left--; left == 0 {
				return true, nil
			}
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func printEvent(e env, ev *mvccpb.Event) error {
	if e.json() {
		return printLine(e.stdout, ev)
	}
	kv := ev.GetKv()
	if ev.GetType() == mvccpb.Event_DELETE {
		return e.say("%d\tdelete\t%s", kv.GetModRevision(), cell(string(kv.GetKey())))
	}
	return e.say("%d\tput\t%s\t%s", kv.GetModRevision(), cell(string(kv.GetKey())), valueCell(kv.GetValue()))
}

// await returns when the keys are as --until wants them.
func (w *kvWatchFlags) await(ctx context.Context, c *keyClient, key string) error {
	return awaitKeys(ctx, c, key, w.prefix, func(r *clientv3.GetResponse) (bool, error) {
		return w.until.want < 0 && r.Count == 0 || w.until.want > 0 && r.Count >= w.until.want, nil
	}, clientv3.WithCountOnly())
}

// awaitKeys reads a range at once and after each change, until enough says that it
// is, or ctx ends.
func awaitKeys(ctx context.Context, c *keyClient, key string, prefix bool, enough func(*clientv3.GetResponse) (bool, error), opts ...clientv3.OpOption) error {
	for {
		r, err := c.Get(ctx, key, rangeOf(prefix, opts...)...)
		if err == nil {
			if done, err := enough(r); done || err != nil {
				return err
			}
			err = watchKeys(ctx, c, key, prefix, r.Header.GetRevision()+1, func([]*mvccpb.Event) (bool, error) { return true, nil })
		}
		switch {
		case err == nil, errors.Is(err, rpctypes.ErrCompacted): // look again
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !passing(err):
			return keyReadError(fmt.Sprintf("get %q", key), err)
		default:
			pause(ctx, reopenAfter)
		}
	}
}

// reopenAfter a watch was ended by a server.
const reopenAfter = 200 * time.Millisecond

// watchKeys hands changes to take, in order and each once, until it says that it is
// done, ctx ends, or an error that does not pass. It resumes where the last
// watch ended. rev 0 is what comes next.
func watchKeys(ctx context.Context, c *keyClient, key string, prefix bool, rev int64, take func([]*mvccpb.Event) (bool, error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		// A server that has lost its leader ends the watch, and the next one
		// goes elsewhere.
		opening, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		next, done, err := watchOneStream(c.Watch(opening, key, rangeOf(prefix, clientv3.WithRev(rev), clientv3.WithCreatedNotify())...), rev, take)
		stop()
		rev = next
		switch {
		case done:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, rpctypes.ErrCompacted):
			return &codedError{exitRefused, &hintError{fmt.Errorf("watch %q from revision %d: %w", key, rev, err), "read what is there (leasehold kv get), then watch from then on"}}
		case err != nil && !passing(err):
			return keyReadError(fmt.Sprintf("watch %q", key), err)
		}
		pause(ctx, reopenAfter)
	}
}

// watchOneStream returns the revision to resume from.
func watchOneStream(watch clientv3.WatchChan, rev int64, take func([]*mvccpb.Event) (bool, error)) (next int64, done bool, err error) {
	for r := range watch {
		if err := r.Err(); err != nil {
			return rev, false, err
		}
		if r.Created && rev == 0 {
			rev = r.Header.GetRevision() + 1
		}
		if len(r.Events) == 0 {
			continue
		}
		if done, err := take(r.Events); done || err != nil {
			return rev, true, err
		}
		rev = r.Events[len(r.Events)-1].GetKv().GetModRevision() + 1
	}
	return rev, false, nil
}

// passing says that an error is worth another try.
func passing(err error) bool {
	switch exitByCode[codeOf(err)] {
	case exitUnreachable:
		return true
	}
	return errors.Is(err, rpctypes.ErrNoLeader)
}

// pause waits, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
