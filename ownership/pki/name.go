package pki

import (
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

const (
	scheme     = "leasehold://"
	maxNameLen = 128
	// maxURILen is above what the limits of a scope allow with every byte escaped.
	maxURILen = 3*access.MaxPatterns*(access.MaxPrefixLen+access.MaxPatternLen+16) + 1024
)

// Name is who a certificate speaks for.
type Name struct {
	Cluster string // the servers' --gossip-label
	Role    access.Role
	Name    string // of the server or worker, or of whoever looks and operates
	// Scope bounds the role; access.Everywhere has no bounds. A server has none.
	Scope access.Scope
}

// URI is the name as certificates have it:
// leasehold://CLUSTER/ROLE/NAME?keyspace=orders&keyspace=pay-*&prefix=/app/,
// without a query where there are no bounds. A Name has one spelling.
func (n Name) URI() string {
	var b strings.Builder
	b.WriteString(scheme + n.Cluster + "/" + n.Role.String() + "/" + n.Name)
	if n.Scope.AllKeyspaces() && n.Scope.AllKeys() {
		return b.String()
	}
	sep := byte('?')
	add := func(field string, values []string) {
		for _, v := range values {
			b.WriteByte(sep)
			b.WriteString(field + "=")
			escape(&b, v)
			sep = '&'
		}
	}
	add("keyspace", n.Scope.Keyspaces)
	add("prefix", n.Scope.Prefixes)
	return b.String()
}

// escape writes what is not plain as percent and two upper-case digits.
func escape(b *strings.Builder, value string) {
	for i := 0; i < len(value); i++ {
		if c := value[i]; alphanumeric(c) || strings.IndexByte("-._~/:*", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(b, "%%%02X", c)
		}
	}
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// Validate says everything that is wrong, naming the field, value and limit.
func (n Name) Validate() error {
	errs := []error{CheckCluster(n.Cluster), CheckName(n.Name)}
	if !n.Role.Known() {
		errs = append(errs, fmt.Errorf("role %q: want reader, worker, operator or server", n.Role))
	}
	errs = append(errs, n.Scope.Validate())
	everywhere := n.Scope.AllKeyspaces() && n.Scope.AllKeys()
	switch {
	case n.Role == access.Server && !everywhere:
		errs = append(errs, errors.New("scope: a server has no bounds"))
	case len(n.Scope.Keyspaces) == 0 && len(n.Scope.Prefixes) == 0:
		errs = append(errs, errors.New("scope: nowhere: name a keyspace or a key prefix, or use access.Everywhere"))
	}
	return errors.Join(errs...)
}

// CheckName refuses what cannot be the name in a certificate: the rule is that for
// the ids of servers and workers.
func CheckName(name string) error {
	ok := len(name) > 0 && len(name) <= maxNameLen && name != "." && !strings.Contains(name, "..")
	for i := 0; ok && i < len(name); i++ {
		ok = alphanumeric(name[i]) || strings.IndexByte("._-:", name[i]) >= 0
	}
	if !ok {
		return fmt.Errorf("name %q: want 1 to %d bytes of A-Z a-z 0-9 . _ - : and neither \".\" nor a name with \"..\"", clip(name), maxNameLen)
	}
	return nil
}

// CheckCluster refuses what cannot be the name of a cluster in a certificate. It
// stands where a URI has a host.
func CheckCluster(cluster string) error {
	ok := len(cluster) > 0 && len(cluster) <= maxNameLen && !strings.Contains("."+cluster+".", "..")
	for i := 0; ok && i < len(cluster); i++ {
		ok = alphanumeric(cluster[i]) || strings.IndexByte("._-", cluster[i]) >= 0
	}
	if !ok {
		return fmt.Errorf("cluster %q: want 1 to %d bytes of A-Z a-z 0-9 . _ - with something before, between and after dots", clip(cluster), maxNameLen)
	}
	return nil
}

// ParseName reads what URI has written, and nothing else: every other spelling of
// the same thing is refused, so that no two readers can differ about one.
func ParseName(uri string) (Name, error) {
	bad := func(format string, args ...any) (Name, error) {
		return Name{}, fmt.Errorf("name %q: %s; want leasehold://CLUSTER/ROLE/NAME", clip(uri), fmt.Sprintf(format, args...))
	}
	if len(uri) > maxURILen {
		return bad("%d bytes: at most %d", len(uri), maxURILen)
	}
	rest, ok := strings.CutPrefix(uri, scheme)
	if !ok {
		return bad("it does not begin with %s", scheme)
	}
	path, query, bounded := strings.Cut(rest, "?")
	parts := strings.Split(path, "/")
	if len(parts) != 3 {
		return bad("%d parts", len(parts))
	}
	role, err := access.ParseRole(parts[1])
	if err != nil {
		return bad("%v", err)
	}
	n := Name{Cluster: parts[0], Role: role, Name: parts[2], Scope: access.Everywhere()}
	if bounded {
		if n.Scope, err = parseScope(query); err != nil {
			return bad("%v", err)
		}
	}
	if err := n.Validate(); err != nil {
		return bad("%v", err)
	}
	if n.URI() != uri {
		return bad("not as it is written in full, %q", clip(n.URI()))
	}
	return n, nil
}

func parseScope(query string) (access.Scope, error) {
	var s access.Scope
	for len(query) > 0 && len(s.Keyspaces)+len(s.Prefixes) <= 2*access.MaxPatterns {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		field, raw, _ := strings.Cut(pair, "=")
		value, err := url.PathUnescape(raw)
		switch {
		case err != nil:
			return s, errors.New("its query is not escaped well")
		case field == "keyspace":
			s.Keyspaces = append(s.Keyspaces, value)
		case field == "prefix":
			s.Prefixes = append(s.Prefixes, value)
		default:
			return s, fmt.Errorf("%q is not a bound: want keyspace or prefix", clip(field))
		}
	}
	return s, nil
}

// NameOf is the one name of the product in a certificate.
func NameOf(cert *x509.Certificate) (Name, error) {
	uris, err := leaseholdURIs(cert)
	if err != nil {
		return Name{}, refuse(cert, ReasonBad, "%v", err)
	}
	switch {
	case len(uris) == 0:
		return Name{}, refuse(cert, ReasonBad, "no URI leasehold://CLUSTER/ROLE/NAME among its alternative names; make one with leasehold tls issue")
	case len(uris) > 1:
		return Name{}, refuse(cert, ReasonBad, "%d URIs of leasehold among its alternative names: want one", len(uris))
	case cert.IsCA:
		return Name{}, refuse(cert, ReasonBad, "the certificate of an authority speaks for nobody")
	}
	n, err := ParseName(uris[0])
	if err != nil {
		return Name{}, refuse(cert, ReasonBad, "%v", err)
	}
	return n, nil
}

var oidAltNames = asn1.ObjectIdentifier{2, 5, 29, 17}

// uriTag is the context tag of a URI among alternative names, RFC 5280 §4.2.1.6.
const uriTag = 6

// leaseholdURIs are the alternative names whose scheme is ours in any case, byte
// for byte: package x509 parses them into URLs, which makes one of two spellings.
func leaseholdURIs(cert *x509.Certificate) ([]string, error) {
	var uris []string
	for _, ext := range cert.Extensions {
		if !ext.Id.Equal(oidAltNames) {
			continue
		}
		var names []asn1.RawValue
		if rest, err := asn1.Unmarshal(ext.Value, &names); err != nil || len(rest) > 0 {
			return nil, errors.New("its alternative names cannot be read")
		}
		for _, n := range names {
			if n.Class != asn1.ClassContextSpecific || n.Tag != uriTag {
				continue
			}
			const word = "leasehold:"
			if uri := string(n.Bytes); len(uri) >= len(word) && strings.EqualFold(uri[:len(word)], word) {
				uris = append(uris, uri)
			}
		}
	}
	return uris, nil
}
