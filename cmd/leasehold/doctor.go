package main

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/doctor"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/spf13/cobra"
)

// diagnose is what is wrong, in words that may be shown: what was typed for the
// address of a server is in them.
func diagnose(facts *doctor.Facts) []*leaseholdv1.Finding {
	found := doctor.Examine(facts)
	for _, f := range found {
		for _, text := range []*string{&f.What, &f.Subject, &f.Evidence, &f.Why, &f.Next} {
			*text = withoutSecrets(*text)
		}
	}
	return found
}

// lookTimeout is what one server gets to answer unless --timeout was given: a
// silent one must not hold up what can be said of the others.
const lookTimeout = 3 * time.Second

func newDoctorCommand(e env) *cobra.Command {
	apart := durationFlag{d: 2 * time.Second, max: 10 * time.Minute}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Find out what is wrong with the cluster and what to do about it",
		Long: `Ask every server directly, twice, and say what is wrong: for each finding how
bad it is, the figures, why it matters and what to do next. It works without a
leader, without a quorum and with servers that are down. It asks the servers of
--server and all that those name.

Nothing is changed. Exit code 0 means that nothing was found but notices, 1 a
warning or worse, 3 that no server answers. With -o json the findings are a list
of leasehold.v1.Finding; their code is a stable word for scripts.

Clock rates are compared between the two looks: the longer they are apart, the
smaller the error.`,
		Example: `  leasehold doctor
  leasehold doctor --duration 30s --server 10.0.0.1:7400,10.0.0.2:7400
  leasehold doctor -o json | jq -r '.items[] | select(.severity == "critical") | .what'`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts, err := e.examine(cmd.Context(), apart.d, true)
			if err != nil {
				return err
			}
			found := diagnose(facts)
			if err := printDiagnosis(e, facts, found); err != nil {
				return err
			}
			switch worst := doctor.Worst(found); {
			case !facts.Answered():
				return &codedError{exitUnreachable, nil}
			case worst == doctor.Critical, worst == doctor.Warning:
				return &codedError{exitFailed, nil}
			}
			return nil
		},
	}
	cmd.Flags().Var(&apart, "duration", "time between the two looks")
	return cmd
}

// examine collects facts for doctor and check.
func (e env) examine(ctx context.Context, apart time.Duration, lists bool) (*doctor.Facts, error) {
	c, err := e.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	bar := newProgress(e)
	defer bar.done()
	return doctor.Collect(ctx, doctor.Config{
		Servers: e.flags.server, Client: c, Duration: apart, Timeout: e.lookTimeout(), Clock: bootclock.Boot(), Lists: lists,
		Progress: func(what string) { bar.show("%s", what) },
	})
}

// lookTimeout is what one server gets to answer.
func (e env) lookTimeout() time.Duration {
	if e.flags.patience == 0 { // who names a time wants all of it
		return e.flags.timeout.d
	}
	return min(e.flags.timeout.d, lookTimeout)
}

func printDiagnosis(e env, facts *doctor.Facts, found []*leaseholdv1.Finding) error {
	if e.json() {
		return printItems(e.stdout, found)
	}
	count := map[string]int{}
	for _, f := range found {
		count[f.GetSeverity()]++
		lines := []string{fmt.Sprintf("%s  %s", e.paint(severityColour[f.GetSeverity()], fmt.Sprintf("%-8s", strings.ToUpper(f.GetSeverity()))), plain(f.GetWhat()))}
		for _, part := range [][2]string{{"about", f.GetSubject()}, {"figures", f.GetEvidence()}, {"why", f.GetWhy()}, {"next", f.GetNext()}} {
			if part[1] != "" {
				lines = append(lines, fmt.Sprintf("          %-7s  %s", part[0], plain(part[1])))
			}
		}
		if err := e.say("%s\n", strings.Join(lines, "\n")); err != nil {
			return err
		}
	}
	sum := "nothing found"
	if len(found) > 0 {
		sum = fmt.Sprintf("%d critical, %d warning, %d notice", count[doctor.Critical], count[doctor.Warning], count[doctor.Notice])
	}
	return e.say("%s; looked at: %s", sum, plain(facts.Summary()))
}

var severityColour = map[string]string{doctor.Critical: red, doctor.Warning: yellow, doctor.Notice: green}

// plain makes a sentence safe for a terminal: names from elsewhere are in it.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
