package main

import (
	"crypto/x509"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/pki"
	"github.com/leasehold-dev/leasehold/raftstore/access"
	"github.com/spf13/cobra"
)

type issueFlags struct {
	dir, role, cluster            string
	hosts, keyspaces, keyPrefixes []string
	life                          lifeFlags
	renew                         bool
}

func newTLSIssueCommand(e env) *cobra.Command {
	var f issueFlags
	cmd := &cobra.Command{
		Use:   "issue --role ROLE NAME[=HOST,...]...",
		Short: "Make certificates: NAME.pem and NAME-key.pem",
		Long: `Make certificates, signed by the authority of the directory: NAME.pem and
NAME-key.pem for each NAME, which is the id of a server or worker, or the name of
a person or program. What a role may do:

  server    be a part of the cluster; NAME is its --id
  worker    own partitions and use keys; NAME also as the beginning of its id,
            before a - or a dot
  reader    look at everything
  operator  run the cluster

--keyspace and --key-prefix bound a role that is not server: to keyspaces, or
beginnings of their names and a star, and to keys of the coordination API. Who is
given only one of the two gets nothing of the other.

The names and addresses that browsers, curl, etcdctl and Prometheus dial a server
by follow its NAME and a = sign, or are in --host for all; localhost is always
among them. Leasehold itself does not look at them.

Running servers and workers take new files up within seconds: replace them in
time with --renew, which keeps role, bounds and hosts unless they are given.`,
		Example: `  leasehold tls issue --role server s1=10.0.0.1 s2=10.0.0.2,s2.example s3=10.0.0.3
  leasehold tls issue --role worker w1 w2 --keyspace orders --keyspace 'pay-*'
  leasehold tls issue --role operator alice --days 30
  leasehold tls issue --renew s1 s2 s3`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(e, cmd, args) },
	}
	flags := cmd.Flags()
	pkiFlag(cmd, &f.dir)
	flags.StringVar(&f.role, "role", "", "the `role`: server, worker, reader or operator")
	flags.StringSliceVar(&f.hosts, "host", nil, "host `names` or addresses of all these servers")
	flags.StringSliceVar(&f.keyspaces, "keyspace", nil, "keyspaces that it may use, such as orders or pay-* (default all)")
	flags.StringArrayVar(&f.keyPrefixes, "key-prefix", nil, "beginning of the `keys` that it may use; may be repeated (default all)")
	flags.StringVar(&f.cluster, "cluster", "", "name of the `cluster` (default the authority's)")
	flags.BoolVar(&f.renew, "renew", false, "replace the files of these names")
	f.life.define(cmd, 90, "the certificates are valid; no longer than the authority")
	complete(cmd, "role", fixed("server", "worker", "reader", "operator"))
	complete(cmd, "keyspace", flagNames(e, keyspaceNames))
	return cmd
}

func (f *issueFlags) run(e env, cmd *cobra.Command, args []string) error {
	requests, err := f.requests(cmd, args)
	if err != nil {
		return err
	}
	cert, key := filepath.Join(f.dir, caFile), filepath.Join(f.dir, caKeyFile)
	a, err := pki.LoadAuthority(cert, key)
	if err != nil {
		return noAuthority(f.dir, err)
	}
	if a.Cluster == "" && f.cluster == "" {
		return usage("--cluster is missing: the authority in %s does not say for which cluster it is", cert)
	}
	for _, r := range requests {
		if cert, key := f.files(r); !f.renew {
			if err := absent(cert, key); err != nil {
				return &hintError{err, "add --renew to replace it, or name another directory with --dir"}
			}
		}
	}
	var made []issuedFiles
	for _, r := range requests {
		i, err := f.issue(a, r)
		if err != nil {
			return fmt.Errorf("issue the certificate of %q: %w", r.Name.Name, err)
		}
		made = append(made, i)
		if !e.json() {
			if err := e.say("%s is %s until %s; its key is %s", i.Cert, i.URI, dayText(i.NotAfter), i.Key); err != nil {
				return err
			}
		}
	}
	if e.json() {
		return printJSON(e.stdout, map[string]any{"items": made})
	}
	return nil
}

// requests are what the command line asks for, all of it checked.
func (f *issueFlags) requests(cmd *cobra.Command, args []string) ([]pki.Request, error) {
	if len(args) == 0 {
		return nil, usage("NAME is missing")
	}
	if f.role == "" && !f.renew {
		return nil, usage("--role is missing: want server, worker, reader or operator")
	}
	life, err := f.life.span(cmd)
	if err != nil {
		return nil, err
	}
	var requests []pki.Request
	for _, arg := range args {
		r, err := f.request(arg)
		if err != nil {
			return nil, err
		}
		r.Life = life
		name := r.Name.Name
		switch {
		case name == "ca" || name == "crl" || strings.HasSuffix(name, "-key"):
			return nil, usage("NAME %q: the file %s.pem is for something else", name, name)
		case slices.ContainsFunc(requests, func(q pki.Request) bool { return q.Name.Name == name }):
			return nil, usage("NAME %q is given twice", name)
		case r.Name.Role != access.Server && len(r.Hosts) > 0:
			return nil, usage("hosts %s of %s: only servers are dialled, a %s has none", strings.Join(r.Hosts, ","), name, r.Name.Role)
		}
		if err := r.Validate(); err != nil {
			return nil, usage("%s: %v", arg, err)
		}
		requests = append(requests, r)
	}
	return requests, nil
}

// request is what one argument and the flags ask for; with --renew, what they do
// not say is as it was: a bound that is not repeated must not fall away.
func (f *issueFlags) request(arg string) (pki.Request, error) {
	name, hosts, given := strings.Cut(arg, "=")
	r := pki.Request{Name: pki.Name{Name: name, Scope: access.Everywhere()}}
	if f.renew {
		if err := pki.CheckName(name); err != nil {
			return r, usage("%s: %v", arg, err)
		}
		var err error
		if r, err = f.present(name); err != nil {
			return r, err
		}
	}
	if f.role != "" {
		role, err := access.ParseRole(f.role)
		switch {
		case err != nil:
			return r, usage("--%v", err)
		case f.renew && role != r.Name.Role:
			return r, usage("--role %s: %s is a %s; issue another name, or into another --dir", role, name, r.Name.Role)
		}
		r.Name.Role = role
	}
	if f.cluster != "" {
		r.Name.Cluster = f.cluster
	}
	if len(f.keyspaces) > 0 || len(f.keyPrefixes) > 0 {
		r.Name.Scope = access.ScopeOf(f.keyspaces, f.keyPrefixes)
	}
	if given || len(f.hosts) > 0 {
		r.Hosts = slices.Clone(f.hosts)
	}
	if given {
		r.Hosts = append(r.Hosts, strings.Split(hosts, ",")...)
	}
	return r, nil
}

// present is the request that the certificate which is there would come from.
func (f *issueFlags) present(name string) (pki.Request, error) {
	file := filepath.Join(f.dir, name+".pem")
	c, err := pki.ParseCertificate(file)
	if err != nil {
		return pki.Request{}, fmt.Errorf("renew %s: %w", name, err)
	}
	n, err := pki.NameOf(c)
	if err != nil {
		return pki.Request{}, fmt.Errorf("renew %s: %s: %w", name, file, err)
	}
	if n.Name != name {
		return pki.Request{}, &codedError{exitRefused, fmt.Errorf("renew %s: %s is the certificate of %s", name, file, n.URI())}
	}
	return pki.Request{Name: n, Hosts: pki.HostsOf(c)}, nil
}

func (f *issueFlags) files(r pki.Request) (cert, key string) {
	return filepath.Join(f.dir, r.Name.Name+".pem"), filepath.Join(f.dir, r.Name.Name+"-key.pem")
}

func (f *issueFlags) issue(a *pki.Authority, r pki.Request) (issuedFiles, error) {
	pair, cert, err := a.Issue(r)
	if err != nil {
		return issuedFiles{}, err
	}
	put := createPair
	if f.renew {
		put = replacePair
	}
	certFile, keyFile := f.files(r)
	if err := put(certFile, keyFile, pair); err != nil {
		return issuedFiles{}, err
	}
	return issued(certFile, keyFile, cert)
}

func issued(certFile, keyFile string, cert *x509.Certificate) (issuedFiles, error) {
	n, err := pki.NameOf(cert)
	if err != nil {
		return issuedFiles{}, err
	}
	i := describeFiles(certFile, keyFile, n.Cluster, pki.Serial(cert), cert.NotAfter)
	i.URI = n.URI()
	return i, nil
}
