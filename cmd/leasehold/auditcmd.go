package main

import (
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/auditlog"
	"github.com/spf13/cobra"
)

func newAuditCommand(e env) *cobra.Command {
	return group("audit", "Check the files of who has called what",
		"  leasehold audit verify /var/lib/leasehold/audit.log*", newAuditVerifyCommand(e))
}

func newAuditVerifyCommand(e env) *cobra.Command {
	var has string
	cmd := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Check the chain of hashes of an audit log",
		Long: `Read the segments of a server's audit log, or of several servers', in any order:
each line has the hash of itself and of the line before. It names the first line
that was changed, moved, added, or is missing, with exit code 1.

Nobody can see from the files alone that the newest lines were cut off, or that
all were made anew. Keep the last hash that this command prints elsewhere: with
--has, it looks for that line. It needs no server.`,
		Example: `  leasehold audit verify /var/lib/leasehold/audit.log*
  leasehold audit verify audit.log --has 9f2c6c5e…   # the hash of a line, noted earlier`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("FILE is missing")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			rep, err := auditlog.Verify(has, args...)
			if err != nil {
				return err
			}
			if has != "" && !rep.Has {
				return fmt.Errorf("no line has the hash %s: lines were cut off, or all were made anew", has)
			}
			if e.json() {
				return printJSON(e.stdout, auditResult(rep))
			}
			for _, c := range rep.Servers {
				if err := e.say("server %s is good: lines %d to %d, %s to %s, last hash %s", c.Server, c.First, c.Last, c.From, c.To, c.Hash); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&has, "has", "", "`hash` of a line that must be there")
	return cmd
}

// auditChain is what -o json says of a server's lines.
type auditChain struct {
	Server string `json:"server"`
	First  uint64 `json:"first,string"`
	Last   uint64 `json:"last,string"`
	From   string `json:"from"`
	To     string `json:"to"`
	Hash   string `json:"hash"`
}

func auditResult(rep *auditlog.Report) []auditChain {
	chains := make([]auditChain, 0, len(rep.Servers))
	for _, c := range rep.Servers {
		chains = append(chains, auditChain(c))
	}
	return chains
}
