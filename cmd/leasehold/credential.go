package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func newCredentialCommand(e env) *cobra.Command {
	return group("credential", "Make, list and revoke credentials of those who have no certificate",
		"  leasehold credential create ci --role reader --ttl 720h --out ci.token\n  leasehold credential ls\n  leasehold credential revoke ci",
		newCredentialCreateCommand(e), newCredentialListCommand(e), newCredentialRevokeCommand(e))
}

// roleWords are the roles that a credential can have.
var roleWords = []string{access.Reader.String(), access.Worker.String(), access.Operator.String()}

func newCredentialCreateCommand(e env) *cobra.Command {
	var (
		role, out           string
		keyspaces, prefixes []string
		ttl                 durationFlag
	)
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a credential and print its token, once",
		Long: `Make a credential for somebody who has no certificate: a person, a job, a client of
etcd's. Its token goes to standard output and nothing else does; with --out it goes
into a new file that only you can read, which is what --credential-file wants. The
servers keep a hash: a token that is lost cannot be shown again.

A reader looks, a worker owns partitions and uses keys, an operator runs the
cluster. --keyspace and --key-prefix bound that to keyspaces and to keys of the
coordination API; with neither it reaches everywhere, and who names only one of
the two means nothing of the other. Nobody can give more than they have.

Servers without TLS ask nobody for a credential.`,
		Example: `  leasehold credential create ci --role reader --ttl 720h --out ci.token
  leasehold credential create pay --role worker --keyspace 'pay-*' --key-prefix /pay/ --out pay.token
  leasehold credential create on-call --role operator --ttl 12h`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &leaseholdv1.CreateCredentialRequest{Name: args[0], Keyspaces: keyspaces, KeyPrefixes: prefixes, TtlMs: ttl.ms()}
			switch {
			case role == "":
				return usage("--role is missing: what may its holder do? want one of %s", strings.Join(roleWords, ", "))
			case cmd.Flags().Changed("ttl") && r.TtlMs == 0:
				return usage("--ttl 0: leave it out for a credential that never expires")
			}
			known, err := access.ParseRole(role)
			if err != nil || known == access.Server {
				return usage("--role %q: want one of %s", role, strings.Join(roleWords, ", "))
			}
			r.Role = leaseholdv1.Role(known)
			if out == "" {
				resp, err := createCredential(cmd.Context(), e, r)
				if err != nil {
					return err
				}
				return showToken(e, resp)
			}
			return keepToken(cmd.Context(), e, r, out)
		},
	}
	f := cmd.Flags()
	f.StringVar(&role, "role", "", "what its holder may do: reader, worker or operator")
	f.StringArrayVar(&keyspaces, "keyspace", nil, "only this keyspace, or those that begin with what is before a star: `pattern`; may be repeated")
	f.StringArrayVar(&prefixes, "key-prefix", nil, "only keys that begin with this `prefix`; may be repeated")
	f.Var(&ttl, "ttl", "how long it is valid (default for ever)")
	f.Lookup("ttl").DefValue = ""
	f.StringVar(&out, "out", "", "write the token into this new `file`, which only you can read")
	complete(cmd, "role", fixed(roleWords...))
	complete(cmd, "keyspace", flagNames(e, keyspaceNames))
	cmd.ValidArgsFunction = completeArgs(e)
	return cmd
}

func createCredential(ctx context.Context, e env, r *leaseholdv1.CreateCredentialRequest) (*leaseholdv1.CreateCredentialResponse, error) {
	c, err := e.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	resp, err := c.Credentials().CreateCredential(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("create credential %q: %w", r.GetName(), err)
	}
	return resp, nil
}

// showToken writes the token alone, so that it can go straight into what keeps
// secrets; the words are for who looks on.
func showToken(e env, resp *leaseholdv1.CreateCredentialResponse) error {
	if e.json() {
		return printMessage(e.stdout, resp)
	}
	if err := e.say("%s", resp.GetToken()); err != nil {
		return err
	}
	return e.warn("%s; this is the only copy of its token", madeText(resp.GetCredential()))
}

func madeText(m *leaseholdv1.Credential) string {
	return fmt.Sprintf("credential %s (%s) was made: %s, %s, expires %s",
		cell(m.GetName()), m.GetId(), roleName(m.GetRole()), reachText(m), expiresText(m, time.Now()))
}

// keepToken makes the file before the credential: a token without a place to go
// would be lost.
func keepToken(ctx context.Context, e env, r *leaseholdv1.CreateCredentialRequest, name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return &codedError{exitRefused, &hintError{fmt.Errorf("%s is there already", name), "name another file with --out; no token is ever overwritten"}}
	}
	if err != nil {
		return fmt.Errorf("make the file for the token: %w", err)
	}
	resp, err := createCredential(ctx, e, r)
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(name))
	}
	_, err = f.WriteString(resp.GetToken() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return &hintError{fmt.Errorf("credential %s was made, and its token is lost: write %s: %w", resp.GetCredential().GetId(), name, err),
			"leasehold credential revoke " + resp.GetCredential().GetId()}
	}
	resp.Token = ""
	if e.json() {
		return printMessage(e.stdout, resp.GetCredential())
	}
	return e.say("%s; its token is in %s", madeText(resp.GetCredential()), name)
}

func newCredentialListCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List credentials, what each may do and until when",
		Example: "  leasehold credential ls\n  leasehold credential ls -o wide",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Credentials().ListCredentials(cmd.Context(), &leaseholdv1.ListCredentialsRequest{})
			if err != nil {
				return fmt.Errorf("list credentials: %w", err)
			}
			if e.json() {
				return printItems(e.stdout, r.GetItems())
			}
			t := newTable(e, col("NAME"), col("ID"), col("ROLE"), col("KEYSPACES"), col("KEYS"), col("EXPIRES"), wideCol("CREATED"), wideCol("BY"))
			for _, m := range r.GetItems() {
				t.row(m.GetName(), m.GetId(), roleName(m.GetRole()), strings.Join(m.GetKeyspaces(), ","), prefixText(m), expiresText(m, time.Now()),
					timeText(m.GetCreated()), m.GetCreatedBy())
			}
			return t.print("no credentials; make one with: leasehold credential create NAME --role reader")
		},
	}
}

func newCredentialRevokeCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME|ID",
		Short: "End a credential, and all that was opened with it",
		Long: `End a credential at once, on every server: calls with it are refused and its streams
end. Workers that joined with it cannot renew: what they hold in fenced keyspaces
is revoked, what they hold in strict ones moves when they have released it or when
their TTL has passed. Sessions of the coordination API end with their TTL, with
their keys and locks. Nothing is asked of those workers: give them another
credential first to keep them working.`,
		Example:           "  leasehold credential revoke ci\n  leasehold credential revoke ci --yes   # in a script",
		Args:              exactArgs("NAME"),
		ValidArgsFunction: completeArgs(e, credentialNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, _, err := access.ParseToken(args[0]); err == nil {
				return usage("that is a token, and now in your shell's history: name the credential, see: leasehold credential ls")
			}
			if err := confirm(cmd.Context(), e, fmt.Sprintf("Revoke credential %q? What was opened with it ends.", args[0])); err != nil {
				return err
			}
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.Credentials().RevokeCredential(cmd.Context(), &leaseholdv1.RevokeCredentialRequest{Credential: args[0]})
			if err != nil {
				return fmt.Errorf("revoke credential %q: %w", args[0], err)
			}
			if e.json() {
				return printMessage(e.stdout, r)
			}
			return e.say("credential %s (%s) is revoked; %s barred with it", cell(r.GetCredential().GetName()), r.GetCredential().GetId(), barredText(r.GetSessions()))
		},
	}
}

func barredText(n int64) string {
	if n == 1 {
		return "1 session was"
	}
	return fmt.Sprintf("%d sessions were", n)
}

func credentialNames(ctx context.Context, c *client.Client) ([]string, error) {
	r, err := c.Credentials().ListCredentials(ctx, &leaseholdv1.ListCredentialsRequest{})
	var names []string
	for _, m := range r.GetItems() {
		names = append(names, m.GetName())
	}
	return names, err
}

func roleName(r leaseholdv1.Role) string { return access.Role(r).String() }

// reachText says in a sentence where a credential is good.
func reachText(m *leaseholdv1.Credential) string {
	scope := access.Scope{Keyspaces: m.GetKeyspaces(), Prefixes: m.GetKeyPrefixes()}
	if scope.AllKeyspaces() && scope.AllKeys() {
		return "everywhere"
	}
	none := func(s string) string {
		if s == "" {
			return "none"
		}
		return s
	}
	return fmt.Sprintf("keyspaces %s, keys %s", none(strings.Join(m.GetKeyspaces(), ",")), none(prefixText(m)))
}

// prefixText lists key prefixes; the empty one, which is that of all keys, is a star.
func prefixText(m *leaseholdv1.Credential) string {
	words := make([]string, len(m.GetKeyPrefixes()))
	for i, p := range m.GetKeyPrefixes() {
		words[i] = p + "*"
	}
	return strings.Join(words, ",")
}

func timeText(t *timestamppb.Timestamp) string { return t.AsTime().UTC().Format(time.RFC3339) }

// expiresText also tells what has expired, by the clock of this machine.
func expiresText(m *leaseholdv1.Credential, now time.Time) string {
	if m.GetExpires() == nil {
		return "never"
	}
	text := timeText(m.GetExpires())
	if !now.Before(m.GetExpires().AsTime()) {
		text += " (expired)"
	}
	return text
}
