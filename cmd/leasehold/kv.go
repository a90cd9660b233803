package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func newKVCommand(e env) *cobra.Command {
	cmd := group("kv", "Read, write and watch small keys",
		`  leasehold kv put config/limit 100
  leasehold kv get config/limit
  leasehold kv cas config/limit --if-value 100 200
  leasehold kv watch config/ --prefix
  leasehold kv ls config/`,
		newKVGetCommand(e), newKVPutCommand(e), newKVCasCommand(e), newKVDelCommand(e), newKVWatchCommand(e), newKVLsCommand(e),
		newKVCompactCommand(e), newKVDisarmCommand(e))
	cmd.Long = `Read, write and watch small keys: configuration, memberships, flags. Any server
answers; reads are linearizable unless --stale is given. The same keys are there
for etcdctl and etcd's client libraries, on the same port.

Values are written as they are, byte for byte. In tables and lists what does not
print is quoted; -o json is protojson of etcd's own messages with proto field
names, where keys and values are in base64 and revisions are strings.

A value is at most 1.5 MiB and should be far smaller: this is no database.`
	return cmd
}

type kvGetFlags struct {
	prefix, keysOnly, count, stale bool
	rev, limit                     int64
}

func newKVGetCommand(e env) *cobra.Command {
	var g kvGetFlags
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print a value, or the keys that begin with KEY and their values",
		Long: `Print the value of KEY as it is, with nothing added (but a line end on a
terminal). With --prefix print one line for each key that begins with KEY: key, tab,
value; the empty KEY means all. Exit code 4 means that there is no such key.`,
		Example: `  leasehold kv get config/limit
  leasehold kv get config/ --prefix --keys-only
  leasehold kv get members/ --prefix --count
  leasehold kv get config/limit --rev 41                 # as it was then
  leasehold kv get config/limit -o json | jq -r '.kvs[0].mod_revision'`,
		Args:              exactArgs("KEY"),
		ValidArgsFunction: completeArgs(e, completeKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			return e.withKeys(cmd.Context(), func(ctx context.Context, c *keyClient) error { return g.run(ctx, e, c, args[0]) })
		},
	}
	f := cmd.Flags()
	f.BoolVar(&g.prefix, "prefix", false, "all keys that begin with KEY")
	f.BoolVar(&g.keysOnly, "keys-only", false, "keys without values")
	f.BoolVar(&g.count, "count", false, "only how many there are")
	f.Int64Var(&g.rev, "rev", 0, "as they were at this `revision` (default now)")
	f.Int64Var(&g.limit, "limit", 0, "at most this many (default all)")
	staleFlag(cmd, &g.stale)
	return cmd
}

// options are those of one Get.
func (g *kvGetFlags) options() ([]clientv3.OpOption, error) {
	switch {
	case g.rev < 0:
		return nil, usage("--rev %d: want a revision from 1, or 0 for now", g.rev)
	case g.limit < 0:
		return nil, usage("--limit %d: want 0 (all) or more", g.limit)
	}
	opts := rangeOf(g.prefix, clientv3.WithRev(g.rev), clientv3.WithLimit(g.limit))
	if g.keysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	if g.count {
		opts = append(opts, clientv3.WithCountOnly())
	}
	if g.stale {
		opts = append(opts, clientv3.WithSerializable())
	}
	return opts, nil
}

func (g *kvGetFlags) run(ctx context.Context, e env, c *keyClient, key string) error {
	if key == "" && !g.prefix {
		return usage("KEY is empty: with --prefix that means all keys")
	}
	opts, err := g.options()
	if err != nil {
		return err
	}
	r, err := c.Get(ctx, key, opts...)
	if err != nil {
		return keyReadError(fmt.Sprintf("get %q", key), err)
	}
	switch {
	case e.json():
		err = printMessage(e.stdout, (*pb.RangeResponse)(r))
	case g.count:
		err = e.say("%d", r.Count)
	case g.prefix:
		err = printPairs(e, r.Kvs, g.keysOnly)
	case len(r.Kvs) == 1 && g.keysOnly:
		err = e.say("%s", cell(key))
	case len(r.Kvs) == 1:
		err = printValue(e, r.Kvs[0].GetValue())
	}
	if err != nil {
		return err
	}
	if r.Count == 0 && !g.prefix && !g.count {
		return noSuchKey(key)
	}
	if r.More {
		return e.warn("%d of %d keys, because of --limit", len(r.Kvs), r.Count)
	}
	return nil
}

// noSuchKey is exit code 4.
func noSuchKey(key string) error {
	return &codedError{exitNotFound, &hintError{fmt.Errorf("there is no key %q", key), "leasehold kv ls"}}
}

// printValue writes a value as it is.
func printValue(e env, value []byte) error {
	if e.isTerminal(e.stdout) {
		return e.say("%s", strings.TrimSuffix(plainLines(string(value)), "\n"))
	}
	_, err := e.stdout.Write(value)
	return err
}

// plainLines makes text safe for a terminal and leaves its lines.
func plainLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		lines[i] = strings.Join(mapAll(strings.Split(l, "\t"), plain), "\t")
	}
	return strings.Join(lines, "\n")
}

func mapAll(all []string, f func(string) string) []string {
	for i, s := range all {
		all[i] = f(s)
	}
	return all
}

// printPairs writes a line for each key. What would break a line is quoted.
func printPairs(e env, kvs []*mvccpb.KeyValue, keysOnly bool) error {
	var b strings.Builder
	for _, kv := range kvs {
		b.WriteString(cell(string(kv.GetKey())))
		if !keysOnly {
			b.WriteByte('\t')
			b.WriteString(valueCell(kv.GetValue()))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(e.stdout, b.String())
	return err
}

// valueCell is a value in a line; an empty one stays empty.
func valueCell(v []byte) string {
	if len(v) == 0 {
		return ""
	}
	return cell(string(v))
}

func newKVLsCommand(e env) *cobra.Command {
	var stale bool
	cmd := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "List keys with their sizes, versions and revisions",
		Long: `List the keys that begin with PREFIX, or all. SESSION is the session that a key dies
with; -o wide adds the revision that created the key, which is its place in a queue.`,
		Example: `  leasehold kv ls
  leasehold kv ls config/ -o wide`,
		Args:              optionalArg,
		ValidArgsFunction: completeArgs(e, completeKeys),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			opts := []clientv3.OpOption{clientv3.WithPrefix()}
			if stale {
				opts = append(opts, clientv3.WithSerializable())
			}
			return e.withKeys(cmd.Context(), func(ctx context.Context, c *keyClient) error {
				r, err := c.Get(ctx, prefix, opts...)
				if err != nil {
					return keyReadError(fmt.Sprintf("list %q", prefix), err)
				}
				return printKeys(e, (*pb.RangeResponse)(r))
			})
		},
	}
	staleFlag(cmd, &stale)
	return cmd
}

func printKeys(e env, r *pb.RangeResponse) error {
	if e.json() {
		return printItems(e.stdout, r.GetKvs())
	}
	t := newTable(e, col("KEY"), numCol("BYTES"), numCol("VERSION"), numCol("REVISION"), column{title: "CREATED", right: true, wide: true}, col("SESSION"))
	for _, kv := range r.GetKvs() {
		session := ""
		if kv.GetLease() != 0 {
			session = number(kv.GetLease())
		}
		t.row(string(kv.GetKey()), fmt.Sprint(len(kv.GetValue())), number(kv.GetVersion()), number(kv.GetModRevision()), number(kv.GetCreateRevision()), session)
	}
	return t.print("no keys")
}
