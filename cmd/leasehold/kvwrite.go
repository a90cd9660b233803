package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxValue is what is read from standard input. The servers refuse less, with
// their own limit; this bounds the memory of who pipes in the wrong file.
const maxValue = 4 << 20

// valueArg is an argument, or for - what is on standard input.
func valueArg(e env, arg string) (string, error) {
	if arg != "-" {
		return arg, nil
	}
	b, err := io.ReadAll(io.LimitReader(e.stdin, maxValue+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the value from standard input: %w", err)
	case len(b) > maxValue:
		return "", usage("the value on standard input has more than %d bytes", maxValue)
	}
	return string(b), nil
}

const sessionUsage = "the key dies with this session: a `number`, as LEASEHOLD_SESSION has it under lock and session"

func newKVPutCommand(e env) *cobra.Command {
	var session string
	var prev bool
	cmd := &cobra.Command{
		Use:   "put KEY VALUE|-",
		Short: "Write a key",
		Long: `Write a key and print the revision that this made. With - the value is what is on
standard input. A key that is put without --session belongs to no session any more,
whatever it was before.

With --prev the value that was there before is printed in place of the revision.`,
		Example: `  leasehold kv put config/limit 100
  leasehold kv put config/app - < app.yaml
  leasehold session -- sh -c 'leasehold kv put members/a up --session $LEASEHOLD_SESSION; sleep 60'`,
		Args:              exactArgs("KEY", "VALUE"),
		ValidArgsFunction: completeArgs(e, completeKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := valueArg(e, args[1])
			if err == nil {
				err = keyArg(args[0])
			}
			if err != nil {
				return err
			}
			opts, err := putOptions(session, prev)
			if err != nil {
				return err
			}
			return e.withKeys(cmd.Context(), func(ctx context.Context, c *keyClient) error {
				r, err := c.Put(ctx, args[0], value, opts...)
				switch {
				case err != nil:
					return keyWriteError(fmt.Sprintf("put %q", args[0]), "Put", err)
				case e.json():
					return printMessage(e.stdout, (*pb.PutResponse)(r))
				case prev:
					return printValue(e, r.PrevKv.GetValue())
				}
				return e.say("%d", r.Header.GetRevision())
			})
		},
	}
	cmd.Flags().StringVar(&session, "session", "", sessionUsage)
	cmd.Flags().BoolVar(&prev, "prev", false, "print what was there before")
	return cmd
}

func putOptions(session string, prev bool) ([]clientv3.OpOption, error) {
	id, err := sessionID(session)
	if err != nil {
		return nil, err
	}
	opts := []clientv3.OpOption{clientv3.WithLease(id)}
	if prev {
		opts = append(opts, clientv3.WithPrevKV())
	}
	return opts, nil
}

type kvCasFlags struct {
	rev     int64
	absent  bool
	value   string
	session string
}

func newKVCasCommand(e env) *cobra.Command {
	var s kvCasFlags
	cmd := &cobra.Command{
		Use:   "cas KEY NEW|-",
		Short: "Write a key if it is still as expected",
		Long: `Write NEW if KEY was last changed by the revision of --if-rev, or does not exist
(--if-absent), or has the value of --if-value, and print the revision that this made.
With - the new value is what is on standard input.

Exit code 5 means that the condition does not hold: nothing was written, and the
message has the present revision. Exit code 1 can mean that the answer was lost: it may
have been written. With --if-rev, a second try tells.`,
		Example: `  leasehold kv cas config/limit --if-value 100 200
  leasehold kv cas names/alice --if-absent owner-1
  leasehold kv cas config/limit --if-rev 41 - < new.txt`,
		Args:              exactArgs("KEY", "NEW"),
		ValidArgsFunction: completeArgs(e, completeKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := valueArg(e, args[1])
			if err == nil {
				err = keyArg(args[0])
			}
			if err != nil {
				return err
			}
			condition, err := s.condition(cmd, args[0])
			if err != nil {
				return err
			}
			opts, err := putOptions(s.session, false)
			if err != nil {
				return err
			}
			return e.withKeys(cmd.Context(), func(ctx context.Context, c *keyClient) error {
				return changeIf(ctx, e, c, args[0], "write", condition, clientv3.OpPut(args[0], value, opts...))
			})
		},
	}
	f := cmd.Flags()
	f.Int64Var(&s.rev, "if-rev", 0, "only if the key was last changed by this `revision`; 0: only if it is absent")
	f.BoolVar(&s.absent, "if-absent", false, "only if the key does not exist")
	f.StringVar(&s.value, "if-value", "", "only if the key has this `value`")
	f.StringVar(&s.session, "session", "", sessionUsage)
	return cmd
}

// condition is the one that was given.
func (s *kvCasFlags) condition(cmd *cobra.Command, key string) (cond clientv3.Cmp, err error) {
	given := 0
	for _, c := range []struct {
		flag string
		cmp  clientv3.Cmp
	}{
		{"if-rev", clientv3.Compare(clientv3.ModRevision(key), "=", s.rev)},
		{"if-absent", clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		{"if-value", clientv3.Compare(clientv3.Value(key), "=", s.value)},
	} {
		if cmd.Flags().Changed(c.flag) {
			given++
			cond = c.cmp
		}
	}
	switch {
	case given != 1:
		return cond, usage("give one of --if-rev, --if-absent and --if-value")
	case s.rev < 0:
		return cond, usage("--if-rev %d: want a revision from 1, or 0 for absent", s.rev)
	case cmd.Flags().Changed("if-absent") && !s.absent:
		return cond, usage("--if-absent=false: leave it out")
	}
	return cond, nil
}

// changeIf does op if the condition holds, else says what is there.
func changeIf(ctx context.Context, e env, c *keyClient, key, doing string, condition clientv3.Cmp, op clientv3.Op) error {
	r, err := c.Txn(ctx).If(condition).Then(op).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return keyWriteError(fmt.Sprintf("%s %q", doing, key), "Txn", err)
	}
	if e.json() {
		if err := printMessage(e.stdout, (*pb.TxnResponse)(r)); err != nil {
			return err
		}
	}
	if r.Succeeded {
		if e.json() {
			return nil
		}
		return e.say("%d", r.Header.GetRevision())
	}
	there := "it does not exist"
	if kvs := r.Responses[0].GetResponseRange().GetKvs(); len(kvs) == 1 {
		there = fmt.Sprintf("it was last changed by revision %d", kvs[0].GetModRevision())
	}
	return &codedError{exitRefused, fmt.Errorf("%s %q: the condition does not hold: %s", doing, key, there)}
}

type kvDelFlags struct {
	prefix bool
	rev    int64
}

func newKVDelCommand(e env) *cobra.Command {
	var d kvDelFlags
	cmd := &cobra.Command{
		Use:     "del KEY",
		Aliases: []string{"rm", "delete"},
		Short:   "Delete a key, or all that begin with KEY",
		Long: `Delete a key and print how many were deleted. Exit code 4 means that there was no such
key; with --prefix none is as good as some. With --if-rev the key is deleted only if that
revision was the last to change it, and the new revision is printed; else the exit code is 5.

Everything at once (the empty KEY with --prefix) can hurt: it asks, or wants --yes.`,
		Example: `  leasehold kv del config/limit
  leasehold kv del config/limit --if-rev 41
  leasehold kv del jobs/done/ --prefix`,
		Args:              exactArgs("KEY"),
		ValidArgsFunction: completeArgs(e, completeKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			conditional := cmd.Flags().Changed("if-rev")
			if err := d.check(cmd.Context(), e, args[0], conditional); err != nil {
				return err
			}
			return e.withKeys(cmd.Context(), func(ctx context.Context, c *keyClient) error {
				if conditional {
					return changeIf(ctx, e, c, args[0], "delete", clientv3.Compare(clientv3.ModRevision(args[0]), "=", d.rev), clientv3.OpDelete(args[0]))
				}
				return d.run(ctx, e, c, args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&d.prefix, "prefix", false, "all keys that begin with KEY")
	cmd.Flags().Int64Var(&d.rev, "if-rev", 0, "only if the key was last changed by this `revision`")
	return cmd
}

func (d *kvDelFlags) check(ctx context.Context, e env, key string, conditional bool) error {
	switch {
	case conditional && d.prefix:
		return usage("--if-rev is about one key: not with --prefix")
	case conditional && d.rev <= 0:
		return usage("--if-rev %d: want a revision from 1", d.rev)
	case key == "" && !d.prefix:
		return usage("KEY is empty: with --prefix that means all keys")
	case key == "":
		return confirm(ctx, e, "Delete ALL keys?")
	}
	return nil
}

func (d *kvDelFlags) run(ctx context.Context, e env, c *keyClient, key string) error {
	r, err := c.Delete(ctx, key, rangeOf(d.prefix)...)
	if err != nil {
		return keyWriteError(fmt.Sprintf("delete %q", key), "DeleteRange", err)
	}
	if e.json() {
		err = printMessage(e.stdout, (*pb.DeleteRangeResponse)(r))
	} else {
		err = e.say("%d", r.Deleted)
	}
	if r.Deleted == 0 && !d.prefix {
		return errors.Join(err, noSuchKey(key))
	}
	return err
}
