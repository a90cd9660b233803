package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counts is an Observer.
type counts struct {
	mu   sync.Mutex
	open int
	of   map[string]int
	// emptied is closed when the last connection has ended.
	emptied chan struct{}
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[what]++
}

func (c *counts) Connected(_ string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	if c.open == 0 && c.emptied != nil {
		close(c.emptied)
		c.emptied = nil
	}
}

func (c *counts) LimitHit(limit string)    { c.add("limit " + limit) }
func (c *counts) AuthFailed(reason string) { c.add("auth " + reason) }

// want compares what has been counted, as "limit handshakes", say.
func (c *counts) want(t *testing.T, open int, of map[string]int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != open || !maps.Equal(c.of, of) {
		t.Errorf("%d connections and %v, want %d and %v", c.open, c.of, open, of)
	}
}

// pipes is a net.Listener whose peers are in the same process.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Addr() net.Addr { return address("127.0.0.1:1") }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// dial connects from an address.
func (p *pipes) dial(from string) net.Conn {
	here, there := net.Pipe()
	p.accept <- &origin{there, address(from)}
	return here
}

type origin struct {
	net.Conn
	addr address
}

func (c *origin) RemoteAddr() net.Addr { return c.addr }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// authority signs certificates that are good for everything.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t}
	pair := a.issue(1)
	a.cert, a.key = pair.Leaf, pair.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

func (a *authority) issue(serial int64) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	year := func(y int) time.Time { return time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC) }
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: year(1999), NotAfter: year(2099), // a bubble begins in 2000
		IsCA: a.cert == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, DNSNames: []string{"localhost"},
	}
	parent, signer := cert, key
	if a.cert != nil {
		parent, signer = a.cert, a.key
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) server(protocols ...string) *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{a.issue(2)}, ClientCAs: a.pool(), ClientAuth: tls.VerifyClientCertIfGiven,
		MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true, NextProtos: protocols,
	}
}

func (a *authority) client(serial int64, protocols ...string) *tls.Config {
	c := &tls.Config{RootCAs: a.pool(), ServerName: "localhost", NextProtos: protocols}
	if serial > 0 {
		c.Certificates = []tls.Certificate{a.issue(serial)}
	}
	return c
}

// fixture is a Listener and what comes out of it.
type fixture struct {
	*pipes
	*Listener
	counts   *counts
	accepted chan net.Conn
}

// start serves in the background until the test ends.
func start(t *testing.T, cfg Config) *fixture {
	t.Helper()
	f := &fixture{pipes: newPipes(), counts: &counts{}, accepted: make(chan net.Conn, 1000)}
	cfg.Name, cfg.Metrics, cfg.Logger = "grpc", f.counts, slog.New(slog.DiscardHandler)
	f.Listener = New(f.pipes, cfg)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := f.Listener.Accept()
			if err != nil {
				return
			}
			f.accepted <- c
		}
	})
	t.Cleanup(func() {
		if err := f.Listener.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return f
}

// shake makes the client's side of a handshake.
func shake(conn net.Conn, cfg *tls.Config) error {
	err := tls.Client(conn, cfg).Handshake()
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	return nil
}

// ended reports whether the other side has closed a connection.
func ended(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := conn.Read(make([]byte, 1))
	e, ok := err.(net.Error)
	return err != nil && (!ok || !e.Timeout())
}

func (c *counts) count(what string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[what]
}
