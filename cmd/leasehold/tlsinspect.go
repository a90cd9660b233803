package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/spf13/cobra"
)

func newTLSInspectCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE...",
		Short: "Say who certificates are for and how long they last; of a list, what it revokes",
		Long: `Say who certificates are for and how long they last, and of a list of revocations
what it takes back. Files may have several; keys in them are not shown. Those of
the files that a list among them revokes are marked. Signatures are not checked.

Exit code 1: one has expired, or is revoked.`,
		Example: `  leasehold tls inspect pki/s1.pem
  leasehold tls inspect pki/s*.pem pki/crl.pem -o wide
  leasehold tls inspect pki/s1.pem -o json | jq '.items[0].not_after'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("FILE is missing")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return inspectFiles(e, args) },
	}
}

func inspectFiles(e env, names []string) error {
	now := time.Now()
	var list []pki.Description
	for _, name := range names {
		l, err := pki.InspectFile(name, now)
		switch {
		case errors.Is(err, pki.ErrOnlyKeys) && len(names) > 1:
			continue // as *.pem finds it
		case err != nil:
			return fmt.Errorf("inspect: %w", err)
		}
		list = append(list, l...)
	}
	pki.MarkRevoked(list)
	if err := printDescriptions(e, list, now); err != nil {
		return err
	}
	var bad []string
	for _, d := range list {
		switch {
		case d.State == pki.StateExpired && d.Kind == pki.KindRevocations:
			bad = append(bad, d.File+": the next list of revocations is overdue")
		case d.State == pki.StateExpired, d.State == pki.StateRevoked:
			bad = append(bad, fmt.Sprintf("%s: %s is %s", d.File, d.Kind, d.State))
		}
	}
	if len(bad) > 0 {
		return &codedError{exitFailed, errors.New(strings.Join(bad, "; "))}
	}
	return nil
}

// described is a description for scripts.
type described struct {
	pki.Description
	RemainingSeconds int64 `json:"remaining_seconds"`
}

func printDescriptions(e env, list []pki.Description, now time.Time) error {
	if e.json() {
		items := []described{}
		for _, d := range list {
			items = append(items, described{d, max(0, int64(d.NotAfter.Sub(now).Seconds()))})
		}
		return printJSON(e.stdout, map[string]any{"items": items})
	}
	t := newTable(e, col("FILE"), col("KIND"), col("SUBJECT"), wideCol("ROLE"), wideCol("NAME"), wideCol("CLUSTER"), wideCol("SCOPE"), wideCol("HOSTS"), wideCol("ISSUER"),
		col("SERIAL"), wideCol("NOT-BEFORE"), col("NOT-AFTER"), col("REMAINING"), col("STATE"), col("NOTE"))
	for _, d := range list {
		t.row(d.File, d.Kind, subjectText(d), d.Role, d.Name, d.Cluster, scopeText(d), strings.Join(d.Hosts, ","), d.Issuer,
			d.Serial, dayText(d.NotBefore), dayText(d.NotAfter), validText(d.NotAfter, now), d.State, noteText(d))
	}
	return t.print("nothing but keys, which are not shown")
}

func subjectText(d pki.Description) string {
	switch {
	case d.URI != "":
		return d.URI
	case d.Kind == pki.KindRevocations:
		return d.Issuer
	}
	return d.Subject
}

func scopeText(d pki.Description) string {
	if s := (access.Scope{Keyspaces: d.Keyspaces, Prefixes: d.KeyPrefixes}); s.AllKeyspaces() && s.AllKeys() {
		return "everywhere"
	}
	var parts []string
	if len(d.Keyspaces) > 0 {
		parts = append(parts, "keyspaces "+strings.Join(d.Keyspaces, ","))
	}
	for _, p := range d.KeyPrefixes {
		parts = append(parts, fmt.Sprintf("keys %q", p))
	}
	return strings.Join(parts, " ")
}

// noteText is what is wrong with a certificate, or what a list revokes.
func noteText(d pki.Description) string {
	if d.Kind != pki.KindRevocations {
		return d.Fault
	}
	if len(d.Revoked) == 0 {
		return fmt.Sprintf("number %s, revokes none", d.Number)
	}
	const shown = 3
	text := strings.Join(d.Revoked[:min(len(d.Revoked), shown)], ",")
	if len(d.Revoked) > shown {
		text += fmt.Sprintf(" and %d more (-o json)", len(d.Revoked)-shown)
	}
	return fmt.Sprintf("number %s, revokes %s", d.Number, text)
}
