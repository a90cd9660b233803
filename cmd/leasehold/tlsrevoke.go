package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/spf13/cobra"
)

type revokeFlags struct {
	dir     string
	serials []string
	life    lifeFlags
}

func newTLSRevokeCommand(e env) *cobra.Command {
	var f revokeFlags
	cmd := &cobra.Command{
		Use:   "revoke [FILE...]",
		Short: "Take certificates back: add them to the authority's list crl.pem",
		Long: `Take certificates back: add those of the files, or of --serial, to crl.pem, the
list of what the authority of the directory has revoked. Copy it to every server
(--tls-crl-file): a server takes it up within seconds, refuses those certificates
and ends what they have open. What is revoked stays so; issue another certificate.

A list says when its successor is due, and a server does not start with one that
is overdue; one that runs goes on with it and complains. Without arguments the
same list is written anew.`,
		Example: `  leasehold tls revoke pki/w1.pem
  leasehold tls revoke --serial 3c0f7aa1c2d94b1e8f60d1a2b3c4d5e6
  leasehold tls revoke   # the same list for another year`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(e, cmd, args) },
	}
	pkiFlag(cmd, &f.dir)
	cmd.Flags().StringSliceVar(&f.serials, "serial", nil, "serial `numbers` to revoke, as leasehold tls inspect shows them")
	f.life.define(cmd, 365, "until the next list is due")
	return cmd
}

func (f *revokeFlags) run(e env, cmd *cobra.Command, args []string) error {
	life, err := f.life.span(cmd)
	if err != nil {
		return err
	}
	var serials []*big.Int
	for _, s := range f.serials {
		n, err := pki.ParseSerial(s)
		if err != nil {
			return usage("--%v", err)
		}
		serials = append(serials, n)
	}
	caName := filepath.Join(f.dir, caFile)
	a, err := pki.LoadAuthority(caName, filepath.Join(f.dir, caKeyFile))
	if err != nil {
		return noAuthority(f.dir, err)
	}
	for _, name := range args {
		c, err := pki.ParseCertificate(name)
		switch {
		case err != nil:
			return fmt.Errorf("revoke: %w", err)
		case !a.Issued(c) || c.IsCA:
			return &codedError{exitRefused, fmt.Errorf("revoke %s: the authority in %s has not issued it", name, caName)}
		}
		serials = append(serials, c.SerialNumber)
	}
	return f.write(e, a, serials, life)
}

// write puts the new list in the place of the old one. Two at once would lose what
// one of them adds.
func (f *revokeFlags) write(e env, a *pki.Authority, serials []*big.Int, life time.Duration) error {
	lock, err := os.Open(filepath.Join(f.dir, caFile))
	if err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return &codedError{exitRefused, fmt.Errorf("revoke: %s is being written by another command, try again", filepath.Join(f.dir, crlFile))}
	}
	name := filepath.Join(f.dir, crlFile)
	before, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("revoke: %w", err)
	}
	after, list, err := a.Revoke(before, serials, life)
	if err != nil {
		return fmt.Errorf("revoke: %s: %w", name, err)
	}
	if err := replaceFile(name, after, certMode); err != nil {
		return fmt.Errorf("revoke: %w", err)
	}
	if e.json() {
		d, err := pki.InspectFile(name, time.Now())
		if err != nil {
			return err
		}
		return printJSON(e.stdout, map[string]any{"items": d})
	}
	return e.say("%s is list %d, revokes %d and is due for another by %s; copy it to every server", name, list.Number, len(list.RevokedCertificateEntries), dayText(list.NextUpdate))
}
