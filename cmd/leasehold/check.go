package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/doctor"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// checkFlags are what the checks share.
type checkFlags struct {
	keyspace          string
	warning, critical thresholdFlag
	apart             durationFlag
}

func newCheckCommand(e env) *cobra.Command {
	f := checkFlags{apart: durationFlag{d: time.Second, max: 10 * time.Minute}}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check one thing for a monitoring system, with the exit codes of Nagios",
		Long: `Check one thing, or without a name all of them, and write one line: the state,
what was found, and figures after a bar, as Nagios, Icinga, Sensu and others
read them. Exit code 0 is OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN, also for
mistakes on the command line.

Every server that --server names, and all that those name, is asked directly;
no leader is needed.`,
		Example: `  leasehold check
  leasehold check quorum --server 10.0.0.1:7400,10.0.0.2:7400,10.0.0.3:7400
  leasehold check unowned --keyspace orders --warning 0 --critical 16
  leasehold check backup --warning 26h --critical 50h`,
		Args:                       noSubcommand,
		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts, err := e.examine(cmd.Context(), f.apart.d, true)
			if err != nil {
				return checkFailed(e, err)
			}
			return checkDone(e, doctor.All(facts, f.keyspace))
		},
	}
	f.define(e, cmd.Flags(), cmd, true, true)
	for _, c := range doctor.Checks() {
		cmd.AddCommand(newOneCheckCommand(e, c))
	}
	asPlugin(e, cmd)
	return cmd
}

func newOneCheckCommand(e env, c doctor.Check) *cobra.Command {
	f := checkFlags{
		apart:   durationFlag{d: 2 * time.Second, max: 10 * time.Minute},
		warning: thresholdFlag{c.Unit, c.Defaults.Warning}, critical: thresholdFlag{c.Unit, c.Defaults.Critical},
	}
	example := "  leasehold check " + c.Name
	if c.Unit != doctor.NoThreshold {
		example += fmt.Sprintf("\n  leasehold check %s --warning %v --critical %v", c.Name, &f.warning, &f.critical)
	}
	cmd := &cobra.Command{
		Use:     c.Name,
		Short:   "Check: " + c.Short,
		Example: example,
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			apart := time.Duration(0)
			if c.Twice {
				apart = f.apart.d
			}
			facts, err := e.examine(cmd.Context(), apart, c.Lists)
			if err != nil {
				return checkFailed(e, err)
			}
			return checkDone(e, c.Run(facts, doctor.Thresholds{Warning: f.warning.v, Critical: f.critical.v, Keyspace: f.keyspace}))
		},
	}
	f.define(e, cmd.Flags(), cmd, c.Lists, c.Twice)
	if c.Unit != doctor.NoThreshold {
		side := "above"
		if c.Below {
			side = "below"
		}
		cmd.Flags().Var(&f.warning, "warning", "WARNING "+side+" this")
		cmd.Flags().Var(&f.critical, "critical", "CRITICAL "+side+" this"+criticalHelp(c))
	}
	asPlugin(e, cmd)
	return cmd
}

func criticalHelp(c doctor.Check) string {
	if c.Name == "unowned" {
		return "; less than 1 is a share of each keyspace"
	}
	return ""
}

func (f *checkFlags) define(e env, set *pflag.FlagSet, cmd *cobra.Command, lists, twice bool) {
	if lists {
		set.StringVar(&f.keyspace, "keyspace", "", "only this keyspace")
		complete(cmd, "keyspace", flagNames(e, keyspaceNames))
	}
	if twice {
		set.Var(&f.apart, "duration", "time between the two looks at the clocks")
	}
}

// asPlugin makes mistakes on the command line and in the configuration UNKNOWN:
// 2, which they are elsewhere, would be CRITICAL.
func asPlugin(e env, cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return checkFailed(e, flagFault(err)) })
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := args(cmd, given); err != nil {
			return checkFailed(e, err)
		}
		return nil
	}
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := applyLayers(e, cmd); err != nil {
			return checkFailed(e, err)
		}
		return nil
	}
}

// checkFailed is the outcome when the check could not be made.
func checkFailed(e env, err error) error {
	return checkDone(e, doctor.Result{State: doctor.Unknown, Text: message(err)})
}

// checkDone writes the line and ends with the state's code.
func checkDone(e env, r doctor.Result) error {
	if err := e.say("%s", plain(r.Line())); err != nil {
		return err
	}
	if r.State == doctor.OK {
		return nil
	}
	return &codedError{int(r.State), nil}
}

// thresholdFlag is a number, a percentage with or without its sign, or a
// duration, which is kept in seconds.
type thresholdFlag struct {
	unit doctor.Unit
	v    float64
}

// String implements pflag.Value.
func (t *thresholdFlag) String() string {
	switch t.unit {
	case doctor.Duration:
		return shortDuration(time.Duration(t.v * float64(time.Second)))
	case doctor.Percent:
		return strconv.FormatFloat(t.v, 'f', -1, 64) + "%"
	}
	return strconv.FormatFloat(t.v, 'f', -1, 64)
}

// Type implements pflag.Value.
func (t *thresholdFlag) Type() string {
	return map[doctor.Unit]string{doctor.Duration: "duration", doctor.Percent: "percent", doctor.Count: "number"}[t.unit]
}

// Set implements pflag.Value.
func (t *thresholdFlag) Set(s string) error {
	if t.unit == doctor.Duration {
		var d durationFlag
		if err := d.Set(s); err != nil {
			return err
		}
		t.v = d.d.Seconds()
		return nil
	}
	number := s
	if t.unit == doctor.Percent && len(s) > 0 && s[len(s)-1] == '%' {
		number = s[:len(s)-1]
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v < -1e6 || v > 1e12 || v != v {
		return fmt.Errorf("want a number, for example %v", &thresholdFlag{t.unit, 10})
	}
	t.v = v
	return nil
}
