package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

func newSeqCommand(e env) *cobra.Command {
	var session string
	var after uint64
	cmd := &cobra.Command{
		Use:   "seq NAME [VALUE|-]",
		Short: "Draw the next number of a name, and keep a key under it",
		Long: `seq makes the key NAME/ and the next number of that name in 19 digits, with VALUE as its
value, and prints the number. A number is never given twice, whatever is deleted, restarted or
killed; numbers rise, and the order of the keys' bytes is the order of the numbers up to the
last one, 2^63-1. After that it is refused. In a cluster that was restored they go on where the
backup left them: draw with --after once, if some were drawn since.

If the answer is lost the exit code is 1, and a number may be skipped.`,
		Example: `  leasehold seq orders
  leasehold seq jobs "$(cat job.json)"          # the fair queue: the least key is the oldest
  leasehold seq orders --after 1000000          # go on from another system's numbers
  leasehold seq jobs - -o json < job.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return exactArgs("NAME")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return usage("NAME is empty")
			}
			id, err := sessionID(session)
			if err != nil {
				return err
			}
			r := &leaseholdv1.CreateSequentialRequest{Prefix: args[0] + "/", SessionId: uint64(id), After: after}
			if len(args) == 2 {
				value, err := valueArg(e, args[1])
				if err != nil {
					return err
				}
				r.Value = []byte(value)
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			got, err := c.Coordination().CreateSequential(cmd.Context(), r)
			switch {
			case err != nil:
				return fmt.Errorf("draw a number of %q: %w", args[0], err)
			case e.json():
				return printMessage(e.stdout, got)
			}
			return e.say("%d", got.GetNumber())
		},
	}
	cmd.Flags().StringVar(&session, "session", "", sessionUsage)
	cmd.Flags().Uint64Var(&after, "after", 0, "the number will be above this `number`")
	return cmd
}
