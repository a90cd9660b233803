package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// skew is how far behind a clock may be that reads a new certificate.
const skew = 5 * time.Minute

// MaxHosts bounds the host names and addresses of one certificate.
const MaxHosts = 64

// Authority signs certificates and lists of revocations.
type Authority struct {
	Cert    *x509.Certificate
	Cluster string // what its certificates are for, unless a request says otherwise
	key     crypto.Signer
}

// Pair is a certificate and its private key in PEM.
type Pair struct {
	Cert []byte
	Key  []byte
}

// NewAuthority makes an authority for a cluster, which its certificate remembers,
// and its files.
func NewAuthority(cluster string, life time.Duration) (*Authority, Pair, error) {
	if err := errors.Join(CheckCluster(cluster), checkLife(life)); err != nil {
		return nil, Pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Pair{}, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, Pair{}, err
	}
	uri, err := url.Parse(scheme + cluster)
	if err != nil {
		return nil, Pair{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		// The number tells authorities apart that follow each other.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("leasehold authority of %s %x", clipCommon(cluster), serial.Bytes()[:4])},
		URIs:                  []*url.URL{uri},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true, // it signs no other authority
	}
	cert, pair, err := sign(template, template, key, key)
	if err != nil {
		return nil, Pair{}, err
	}
	return &Authority{Cert: cert, Cluster: cluster, key: key}, pair, nil
}

// LoadAuthority reads the files of an authority.
func LoadAuthority(certFile, keyFile string) (*Authority, error) {
	certPEM, err := readFile(certFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority: %w", err)
	}
	certs, err := parseCertificates(certPEM)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	keyPEM, err := readFile(keyFile)
	if err != nil {
		return nil, fmt.Errorf("read the authority's key: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("%s is not the key of the first certificate of %s: %w", keyFile, certFile, err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s: a key that cannot sign", keyFile)
	case !certs[0].IsCA:
		return nil, fmt.Errorf("%s: the certificate of %s is not that of an authority", certFile, subjectOf(certs[0]))
	}
	a := &Authority{Cert: certs[0], key: key}
	a.Cluster, err = ClusterOf(certs[0])
	return a, err
}

// ClusterOf is the cluster that an authority's certificate remembers; "" for an
// authority that somebody else has made.
func ClusterOf(authority *x509.Certificate) (string, error) {
	uris, err := leaseholdURIs(authority)
	if err != nil || len(uris) == 0 {
		return "", err
	}
	cluster := strings.TrimPrefix(uris[0], scheme)
	if err := CheckCluster(cluster); err != nil || len(uris) > 1 {
		return "", refuse(authority, ReasonBad, "its URI is not that of an authority, leasehold://CLUSTER")
	}
	return cluster, nil
}

// Request is a certificate to be issued.
type Request struct {
	Name  Name          // an empty cluster is the authority's
	Hosts []string      // names and addresses by which others dial a server
	Life  time.Duration // it ends with the authority at the latest
}

// Validate says everything that is wrong with a request; an empty cluster is not.
func (r Request) Validate() error {
	if r.Name.Cluster == "" {
		r.Name.Cluster = "x" // any
	}
	return errors.Join(r.Name.Validate(), checkLife(r.Life), checkHosts(r.Hosts))
}

// Issue makes a key and signs a certificate for it.
func (a *Authority) Issue(r Request) (Pair, *x509.Certificate, error) {
	if r.Name.Cluster == "" {
		r.Name.Cluster = a.Cluster
	}
	if err := errors.Join(r.Validate(), CheckCluster(r.Name.Cluster)); err != nil {
		return Pair{}, nil, err
	}
	if err := checkTime(a.Cert, time.Now()); err != nil {
		return Pair{}, nil, fmt.Errorf("the authority can sign nothing: %w", err)
	}
	uri, err := url.Parse(r.Name.URI())
	if err != nil {
		return Pair{}, nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return Pair{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: clipCommon(r.Name.Name)},
		URIs:                  []*url.URL{uri},
		NotBefore:             later(now.Add(-skew), a.Cert.NotBefore),
		NotAfter:              earlier(now.Add(r.Life), a.Cert.NotAfter),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if r.Name.Role == access.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		for _, h := range slices.Compact(slices.Sorted(slices.Values(append([]string{"127.0.0.1", "::1", "localhost"}, r.Hosts...)))) {
			if ip := net.ParseIP(h); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
			} else {
				template.DNSNames = append(template.DNSNames, h)
			}
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, nil, err
	}
	cert, pair, err := sign(template, a.Cert, key, a.key)
	return pair, cert, err
}

func sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey, by crypto.Signer) (*x509.Certificate, Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		return nil, Pair{}, fmt.Errorf("sign the certificate of %q: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, Pair{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, Pair{}, err
	}
	return cert, Pair{
		Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, nil
}

// newSerial is a number of 128 random bits that nobody has to keep count of.
func newSerial() (*big.Int, error) {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		return nil, err
	}
	return new(big.Int).SetBytes(b), nil
}

// maxLife keeps times where certificates can write them.
const maxLife = 100 * 365 * 24 * time.Hour

func checkLife(d time.Duration) error {
	if d < time.Second || d > maxLife {
		return fmt.Errorf("life %v: want 1s to %d days", d, maxLife/(24*time.Hour))
	}
	return nil
}

func checkHosts(hosts []string) error {
	if len(hosts) > MaxHosts {
		return fmt.Errorf("hosts: %d: at most %d", len(hosts), MaxHosts)
	}
	for _, h := range hosts {
		ok := net.ParseIP(h) != nil || len(h) > 0 && len(h) <= 253 && !strings.Contains("."+h+".", "..")
		for i := 0; ok && net.ParseIP(h) == nil && i < len(h); i++ {
			ok = alphanumeric(h[i]) || strings.IndexByte(".-_", h[i]) >= 0
		}
		if !ok {
			return fmt.Errorf("host %q: want a name or an IP address, without a port", clip(h))
		}
	}
	return nil
}

// HostsOf are the names and addresses in a certificate.
func HostsOf(c *x509.Certificate) []string {
	hosts := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return hosts
}

// clipCommon keeps within what X.509 allows for a common name, which people read
// and nothing decides by.
func clipCommon(s string) string { return s[:min(len(s), 32)] }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
