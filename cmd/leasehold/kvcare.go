package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func newKVCompactCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "compact [REVISION]",
		Short: "Forget the history of keys up to a revision (default: all of it)",
		Long: `Forget what was superseded at or below REVISION, or up to now without one, and print the
revision. What is there stays. Reads and watches from before it are refused from then on. The
servers do this by themselves, by age and number (--compact-age, --compact-revisions); by hand
it is for a store that has reached its quota.`,
		Example: `  leasehold kv compact
  leasehold kv compact 41000`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			rev := int64(0)
			if len(args) > 0 {
				var err error
				if rev, err = strconv.ParseInt(args[0], 10, 64); err != nil || rev < 1 {
					return usage("REVISION %q: want a revision from 1", args[0])
				}
			}
			return e.withKeys(cmd.Context(), func(ctx context.Context, c *keyClient) error { return compactKeys(ctx, e, c, rev) })
		},
	}
}

func compactKeys(ctx context.Context, e env, c *keyClient, rev int64) error {
	if rev == 0 {
		r, err := c.Get(ctx, "\x00", clientv3.WithCountOnly())
		if err != nil {
			return keyReadError("ask for the revision", err)
		}
		rev = r.Header.Revision
	}
	doing := fmt.Sprintf("compact up to revision %d", rev)
	r, err := c.Compact(ctx, rev)
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return &codedError{exitRefused, fmt.Errorf("%s: that was done already, or more", doing)}
	case err != nil:
		return keyWriteError(doing, "Compact", err)
	case e.json():
		return printMessage(e.stdout, (*pb.CompactionResponse)(r))
	}
	return e.say("%d", rev)
}

func newKVDisarmCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "disarm",
		Short: "Lower the alarm that no space is left for keys",
		Long: `Lower the alarm that was raised when the keys and their history reached --quota-bytes, and
print how many were raised. Make room first, with kv del and kv compact, or the next put
raises it again.`,
		Example: `  leasehold kv del old/ --prefix && leasehold kv compact && leasehold kv disarm`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return e.withKeys(cmd.Context(), func(ctx context.Context, c *keyClient) error {
				r, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
				if err != nil {
					return keyWriteError("lower the alarm", "Alarm", err)
				}
				if e.json() {
					return printMessage(e.stdout, (*pb.AlarmResponse)(r))
				}
				return e.say("%d", len(r.Alarms))
			})
		},
	}
}
