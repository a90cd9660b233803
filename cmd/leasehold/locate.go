package main

import (
	"encoding/hex"
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newLocateCommand(e env) *cobra.Command {
	var isHex, stale bool
	cmd := &cobra.Command{
		Use:   "locate KEYSPACE KEY",
		Short: "Tell which partition a key belongs to and who owns it",
		Long: `Tell which partition a key belongs to and who owns it. The key is taken byte for
byte: nothing is trimmed or normalised, and the empty key is a key. With --hex
it is given as hexadecimal digits, which can also name a NUL byte.`,
		Example: `  leasehold locate orders customer-4711
  leasehold locate orders --hex 00ff10`,
		Args:              exactArgs("KEYSPACE", "KEY"),
		ValidArgsFunction: completeArgs(e, keyspaceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			key := []byte(args[1])
			if isHex {
				var err error
				if key, err = hex.DecodeString(args[1]); err != nil {
					return usage("key %q: want pairs of hexadecimal digits, for example 00ff10", args[1])
				}
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			p, err := c.Partitions().Locate(cmd.Context(), &leaseholdv1.LocateRequest{Keyspace: args[0], Key: key, Stale: stale})
			if err != nil {
				return fmt.Errorf("locate in %q: %w", args[0], err)
			}
			return printPartition(e, p)
		},
	}
	cmd.Flags().BoolVar(&isHex, "hex", false, "the key is given in hexadecimal digits")
	staleFlag(cmd, &stale)
	return cmd
}
