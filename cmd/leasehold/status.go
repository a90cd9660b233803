package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

func newStatusCommand(e env) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Tell how the cluster fares",
		Long: `Tell how the cluster fares, as one server sees it: the leader if it answers, else
any other. It works without a quorum; the age says how old the answer is. Exit
code 3 means that there is no leader or that nobody answers.

With --wait the command returns when there is a leader and the server is ready,
at most after --timeout.`,
		Example: "  leasehold status\n  leasehold status --wait --timeout 1m && ./deploy.sh",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait {
				e.flags.patience = 0
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := fetchStatus(cmd.Context(), e, c, wait)
			if err != nil {
				return err
			}
			if err := printStatus(e, s); err != nil {
				return err
			}
			if s.GetLeaderId() == "" {
				return &codedError{exitUnreachable, &hintError{errors.New("the cluster has no leader: nothing can be granted or changed"), "leasehold status --wait"}}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when there is a leader and the server is ready")
	return cmd
}

func fetchStatus(ctx context.Context, e env, c *client.Client, wait bool) (*leaseholdv1.Status, error) {
	if !wait {
		s, err := c.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
		if err != nil {
			return nil, fmt.Errorf("ask for status: %w", err)
		}
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.flags.timeout.d)
	defer cancel()
	bar := newProgress(e)
	defer bar.done()
	var s *leaseholdv1.Status
	err := poll(ctx, 100*time.Millisecond, func() (bool, error) {
		next, err := c.Cluster().GetStatus(ctx, &leaseholdv1.GetStatusRequest{})
		if err != nil {
			return false, err // the client has tried for as long as there was time
		}
		s = next
		bar.show("waiting for %s", waitsFor(s))
		return waitsFor(s) == "", nil
	})
	if err != nil {
		if s != nil {
			err = &codedError{exitUnreachable, fmt.Errorf("waiting for %s: %w", waitsFor(s), err)}
		}
		return nil, fmt.Errorf("wait for status: %w", err)
	}
	return s, nil
}

// waitsFor is what is missing before the cluster can be used, or "".
func waitsFor(s *leaseholdv1.Status) string {
	switch {
	case s.GetLeaderId() == "":
		return "a leader"
	case !s.GetReady() && s.GetNotReadyReason() != "":
		return "server " + s.GetServerId() + ", which is not ready: " + s.GetNotReadyReason()
	case !s.GetReady():
		return "server " + s.GetServerId() + " to be ready"
	}
	return ""
}

func tlsText(on bool) string {
	if on {
		return "on, callers are asked who they are"
	}
	return "off, everybody may do everything"
}

func printStatus(e env, s *leaseholdv1.Status) error {
	if e.json() {
		return printMessage(e.stdout, s)
	}
	leader := s.GetLeaderId()
	if leader == "" {
		leader = "none"
	} else if s.GetLeaderGrpcAddr() != "" {
		leader += " at " + s.GetLeaderGrpcAddr()
	}
	ready := yesNo(s.GetReady())
	if !s.GetReady() && s.GetNotReadyReason() != "" {
		ready += ": " + s.GetNotReadyReason()
	}
	fields := []string{
		"cluster", s.GetClusterId(),
		"leader", leader,
		"term", number(s.GetTerm()),
		"answered by", fmt.Sprintf("%s (%s, version %s)", s.GetServerId(), cell(s.GetRaftState()), cell(s.GetVersion())),
		"ready", ready,
		"tls", tlsText(s.GetTls()),
		"age", ageText(s.GetAgeMs()),
		"log", fmt.Sprintf("applied %d, committed %d, events up to %d", s.GetAppliedIndex(), s.GetCommitIndex(), s.GetRevision()),
		"last token", tokenText(s.GetLastToken()),
		"workers", fmt.Sprintf("%d with %d sessions", s.GetWorkers(), s.GetSessions()),
	}
	if ms := s.GetStrictHoldMs(); ms > 0 {
		fields = append(fields, "restored", fmt.Sprintf("nothing strict is granted for another %s, leases of before may still be believed in", shortDuration(time.Duration(ms)*time.Millisecond)))
	}
	if err := printFields(e, fields...); err != nil {
		return err
	}
	if len(s.GetKeyspaces()) == 0 {
		return nil
	}
	if err := e.say(""); err != nil {
		return err
	}
	t := newTable(e, col("KEYSPACE"), numCol("PARTITIONS"), numCol("OWNED"), numCol("DRAINING"), numCol("UNOWNED"), numCol("QUARANTINED"))
	for _, k := range s.GetKeyspaces() {
		t.row(k.GetName(), number(k.GetPartitions()), number(k.GetOwned()), number(k.GetDraining()), number(k.GetUnowned()), number(k.GetQuarantined()))
	}
	return t.print("")
}
