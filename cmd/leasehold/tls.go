package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/ownership/server"
	"github.com/spf13/cobra"
)

// Names of files in the directory of an authority.
const (
	caFile    = "ca.pem"
	caKeyFile = "ca-key.pem"
	crlFile   = "crl.pem"
	pkiDir    = "pki" // the directory, unless --dir names another
)

// Modes of what is written: keys and their directory are their owner's alone.
const (
	certMode   fs.FileMode = 0o644
	keyMode    fs.FileMode = 0o600
	pkiDirMode fs.FileMode = 0o700
)

func newTLSCommand(e env) *cobra.Command {
	cmd := group("tls", "Make certificates, look at them and take them back",
		`  leasehold tls ca create
  leasehold tls issue --role server s1=10.0.0.1 s2=10.0.0.2 s3=10.0.0.3
  leasehold tls issue --role worker w1
  leasehold tls inspect pki/*.pem`,
		group("ca", "Make the authority that signs a cluster's certificates, and look at it",
			"  leasehold tls ca create --cluster orders\n  leasehold tls ca show",
			newCACreateCommand(e), newCAShowCommand(e)),
		newTLSIssueCommand(e), newTLSInspectCommand(e), newTLSRevokeCommand(e))
	cmd.Long = `Make certificates, look at them and take them back. A server that has a
certificate lets nobody in who has neither a certificate nor a credential, and
everything it says is encrypted.

A certificate says who its holder is, in one URI among its alternative names:
leasehold://CLUSTER/ROLE/NAME. Any authority may sign such certificates; these
commands are for who has none. They only write files, and ask no server.`
	return cmd
}

// pkiFlag is --dir, where an authority's files are.
func pkiFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", pkiDir, "the `directory` of the authority's files")
	if err := cmd.MarkFlagDirname("dir"); err != nil {
		panic(err) // the flag was just defined
	}
}

// lifeFlags are --days and --ttl, two ways to say how long something is valid.
type lifeFlags struct {
	days int
	ttl  durationFlag
}

func (l *lifeFlags) define(cmd *cobra.Command, days int, what string) {
	cmd.Flags().IntVar(&l.days, "days", days, "how many days "+what)
	cmd.Flags().Var(&l.ttl, "ttl", "the same as a time span, for short ones")
	cmd.Flags().Lookup("ttl").DefValue = ""
}

func (l *lifeFlags) span(cmd *cobra.Command) (time.Duration, error) {
	if cmd.Flags().Changed("ttl") {
		if cmd.Flags().Changed("days") {
			return 0, usage("--days and --ttl say the same thing: name one of them")
		}
		if l.ttl.d < time.Second {
			return 0, usage("--ttl %s: want 1s or more", shortDuration(l.ttl.d))
		}
		return l.ttl.d, nil
	}
	const most = 36500
	if l.days < 1 || l.days > most {
		return 0, usage("--days %d: want 1 to %d", l.days, most)
	}
	return time.Duration(l.days) * 24 * time.Hour, nil
}

func newCACreateCommand(e env) *cobra.Command {
	var dir, cluster string
	var life lifeFlags
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make the authority of a cluster: ca.pem and ca-key.pem",
		Long: `Make the authority of a cluster: ca.pem, which everybody gets, and ca-key.pem,
which nobody gets: who has it can be anybody. Servers do not need it; keep it
where certificates are made. Files that exist are never overwritten.

There is crl.pem as well, the list of what the authority has revoked, which is
nothing yet. Servers that are started with it (--tls-crl-file) can be given a
later one, which leasehold tls revoke writes, without a restart.

The authority remembers the name of the cluster, which must be the servers'
--gossip-label: certificates for one cluster open nothing in another.

To replace an authority before it runs out, make a new one in another directory,
give everybody a file with both ca.pem, then certificates of the new one, then its
ca.pem alone.`,
		Example: `  leasehold tls ca create
  leasehold tls ca create --cluster orders --dir /srv/pki --days 1825`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := pki.CheckCluster(cluster); err != nil {
				return usage("--cluster: %v", err)
			}
			span, err := life.span(cmd)
			if err != nil {
				return err
			}
			cert, key, crl := filepath.Join(dir, caFile), filepath.Join(dir, caKeyFile), filepath.Join(dir, crlFile)
			if err := absent(cert, key, crl); err != nil {
				return &hintError{err, "leasehold tls ca show --dir " + dir + " shows what is there; name another with --dir, or go on with leasehold tls issue"}
			}
			a, pair, err := pki.NewAuthority(cluster, span)
			if err != nil {
				return fmt.Errorf("make an authority: %w", err)
			}
			if err := os.MkdirAll(dir, pkiDirMode); err != nil {
				return fmt.Errorf("make an authority: %w", err)
			}
			list, _, err := a.Revoke(nil, nil, span)
			if err != nil {
				return fmt.Errorf("make an authority: %w", err)
			}
			if err := createFile(crl, list, certMode); err != nil {
				return fmt.Errorf("make an authority: %w", err)
			}
			if err := createPair(cert, key, pair); err != nil {
				return errors.Join(fmt.Errorf("make an authority: %w", err), os.Remove(crl))
			}
			if e.json() {
				return printJSON(e.stdout, describeFiles(cert, key, a.Cluster, pki.Serial(a.Cert), a.Cert.NotAfter))
			}
			return e.say("%s is the authority of cluster %s until %s; %s is for nobody else", cert, a.Cluster, dayText(a.Cert.NotAfter), key)
		},
	}
	pkiFlag(cmd, &dir)
	cmd.Flags().StringVar(&cluster, "cluster", server.DefaultConfig().GossipLabel, "name of the `cluster`, the servers' --gossip-label")
	life.define(cmd, 3650, "the authority is valid")
	return cmd
}

// issuedFiles is a certificate that has been made, for scripts.
type issuedFiles struct {
	Cert     string    `json:"cert_file"`
	Key      string    `json:"key_file"`
	URI      string    `json:"uri,omitempty"`
	Cluster  string    `json:"cluster"`
	Serial   string    `json:"serial"`
	NotAfter time.Time `json:"not_after"`
}

func describeFiles(cert, key, cluster, serial string, notAfter time.Time) issuedFiles {
	return issuedFiles{Cert: cert, Key: key, Cluster: cluster, Serial: serial, NotAfter: notAfter.UTC()}
}

func newCAShowCommand(e env) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the authority of a directory, and what it has revoked",
		Example: `  leasehold tls ca show
  leasehold tls ca show --dir /srv/pki -o json`,
		Args: exactArgs(),
		RunE: func(_ *cobra.Command, _ []string) error { return showCA(e, dir) },
	}
	pkiFlag(cmd, &dir)
	return cmd
}

func showCA(e env, dir string) error {
	now := time.Now()
	cert, err := pki.ParseCertificate(filepath.Join(dir, caFile))
	if err != nil {
		return noAuthority(dir, err)
	}
	list, err := pki.InspectFile(filepath.Join(dir, caFile), now)
	if err != nil {
		return err
	}
	crl, err := pki.InspectFile(filepath.Join(dir, crlFile), now)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fingerprint := fmt.Sprintf("%x", sha256.Sum256(cert.Raw))
	if e.json() {
		return printJSON(e.stdout, struct {
			Authority   pki.Description   `json:"authority"`
			Fingerprint string            `json:"fingerprint_sha256"`
			Lists       []pki.Description `json:"revocations"`
		}{list[0], fingerprint, append([]pki.Description{}, crl...)})
	}
	fields := []string{
		"cluster", list[0].Cluster, "subject", list[0].Subject, "serial", list[0].Serial, "fingerprint", "sha256 " + fingerprint,
		"not after", dayText(list[0].NotAfter), "remaining", validText(list[0].NotAfter, now), "state", list[0].State,
	}
	for _, l := range crl {
		fields = append(fields, "revoked", fmt.Sprintf("%d, list %s, next update %s", len(l.Revoked), l.Number, dayText(l.NotAfter)))
	}
	return printFields(e, fields...)
}

// noAuthority says how to get an authority, where there is none.
func noAuthority(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &codedError{exitNotFound, &hintError{fmt.Errorf("no authority in %s: %w", dir, err), "leasehold tls ca create --dir " + dir + ", or name the directory of one with --dir"}}
	}
	return err
}

func dayText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// validText is how long something is still valid, in the unit people think in.
func validText(until, now time.Time) string {
	const day = 24 * time.Hour
	left := until.Sub(now)
	switch {
	case until.IsZero():
		return ""
	case left < 0:
		return "none"
	case left >= 2*day:
		return fmt.Sprintf("%d days", left/day)
	}
	return ageText(left.Milliseconds())
}
