package listen

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{Limits: Limits{Connections: 3, PerAddress: 2}})
		a := f.dial("10.0.0.1:1000")
		defer f.dial("10.0.0.1:1001").Close()
		synctest.Wait()
		f.counts.want(t, 2, nil)
		if third := f.dial("10.0.0.1:1002"); !ended(third) {
			t.Error("one address may have two, and has a third")
		}
		defer f.dial("[::ffff:10.0.0.2]:1000").Close()
		if late := f.dial("10.0.0.3:1000"); !ended(late) {
			t.Error("there may be three, and there is a fourth")
		}
		f.counts.want(t, 3, map[string]int{"limit connections_per_address": 1, "limit connections": 1})
		_ = a.Close()
		first := <-f.accepted
		_ = first.Close()
		_ = first.Close() // counts once
		f.counts.want(t, 2, map[string]int{"limit connections_per_address": 1, "limit connections": 1})
		if again := f.dial("10.0.0.1:1003"); ended(again) {
			t.Error("there is no room where a connection has ended")
		}
	})
}

// A peer that says nothing is in nobody's way, and gone after the deadline.
func TestSilentPeerIsInNobodysWay(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server()})
		began := time.Now()
		silent := f.dial("10.0.0.1:1000")
		conn := f.dial("10.0.0.1:1001")
		if err := shake(conn, ca.client(0)); err != nil {
			t.Fatal(err)
		}
		c := <-f.accepted
		if took := time.Since(began); took != 0 {
			t.Errorf("the second was let in after %v", took)
		}
		if _, err := io.ReadAll(silent); err != nil || time.Since(began) != DefaultHandshakeTimeout {
			t.Errorf("the first ended with %v after %v, want %v", err, time.Since(began), DefaultHandshakeTimeout)
		}
		synctest.Wait()
		f.counts.want(t, 1, map[string]int{"limit handshakes": 1})
		if ended(conn) {
			t.Error("the deadline was not that of a handshake alone")
		}
		_ = c.Close()
	})
}

// Whoever opens connections and does not go on takes the place of nobody who does
// for longer than a second.
func TestSlowHandshakeGivesWay(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server(), Limits: Limits{Handshakes: 2}})
		first, second := f.dial("10.0.0.1:1"), f.dial("10.0.0.1:2")
		if third := f.dial("10.0.0.2:1"); !ended(third) {
			t.Error("a third handshake is made beside two young ones")
		}
		f.counts.want(t, 2, map[string]int{"limit handshakes": 1})
		<-time.After(patience)
		honest := f.dial("10.0.0.2:2")
		if err := shake(honest, ca.client(0)); err != nil {
			t.Fatalf("no room beside slow handshakes: %v", err)
		}
		if !ended(first) || ended(second) {
			t.Error("the oldest has to give way, and nobody else")
		}
		synctest.Wait()
		f.counts.want(t, 2, map[string]int{"limit handshakes": 2})
		_ = (<-f.accepted).Close()
	})
}

// So do they within the share of one address, but not those of others.
func TestSlowHandshakeOfAnAddressGivesWay(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server(), Limits: Limits{PerAddress: 1}})
		other, own := f.dial("10.0.0.1:1"), f.dial("10.0.0.2:1")
		<-time.After(patience)
		if err := shake(f.dial("10.0.0.2:2"), ca.client(0)); err != nil {
			t.Fatal(err)
		}
		if ended(other) || !ended(own) {
			t.Error("the wrong one gave way")
		}
		_ = (<-f.accepted).Close()
	})
}

// One address that takes all places again and again, each for less than a second,
// keeps nobody else out: neither by handshakes that do not go on nor as a stranger.
func TestOneAddressKeepsNobodyOut(t *testing.T) {
	ca := newAuthority(t)
	for limit, limits := range map[string]Limits{"handshakes": {Handshakes: 8}, "connections": {Connections: 8}} {
		for _, stranger := range []bool{false, true} {
			if stranger && limit == "handshakes" {
				continue // its handshakes are done
			}
			synctest.Test(t, func(t *testing.T) {
				f := start(t, Config{TLS: ca.server(), Limits: limits})
				attack := func(port int) (open net.Conn) {
					open = f.dial(fmt.Sprint("10.0.0.1:", port))
					if stranger && shake(open, ca.client(0)) == nil {
						c := <-f.accepted
						t.Cleanup(func() { c.Close() })
					}
					return open
				}
				var crowd []net.Conn
				for port := range 8 {
					crowd = append(crowd, attack(port))
				}
				if !ended(attack(8)) {
					t.Error("an address has more places than there are")
				}
				for i, from := range []string{"10.0.0.2:1", "10.0.0.3:1"} {
					honest := f.dial(from)
					if err := shake(honest, ca.client(7)); err != nil {
						t.Fatalf("%s: no room for %s: %v", limit, from, err)
					}
					c := <-f.accepted
					t.Cleanup(func() { c.Close() })
					if limit == "handshakes" { // this one is done, and has no place any more
						crowd[7] = attack(9 + i)
					}
					if ended(honest) {
						t.Error("an honest one gave way")
					}
				}
				left := slices.DeleteFunc(crowd, ended)
				if want := map[string]int{"handshakes": 8, "connections": 6}[limit]; len(left) != want {
					t.Errorf("%s: %d of the crowd are left, want %d", limit, len(left), want)
				}
			})
		}
	}
}

// Many addresses with a few connections each do not push each other out.
func TestFewOfAnAddressAreNoCrowd(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server(), Limits: Limits{Handshakes: 6}})
		var open []net.Conn
		for port := range 6 {
			open = append(open, f.dial(fmt.Sprintf("10.0.0.%d:%d", port/3, port)))
		}
		if !ended(f.dial("10.0.0.9:1")) {
			t.Error("a seventh handshake is made")
		}
		if slices.ContainsFunc(open, ended) {
			t.Error("one of three gave way")
		}
	})
}

func TestRevokedIsCut(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server()})
		open := map[int64]net.Conn{}
		for _, serial := range []int64{0, 0xab, 0xcd} {
			conn := f.dial("10.0.0.1:1")
			if err := shake(conn, ca.client(serial)); err != nil {
				t.Fatal(err)
			}
			defer func(c net.Conn) { c.Close() }(<-f.accepted)
			open[serial] = conn
		}
		f.Cut("ab")
		f.Cut("abcd")
		for serial, conn := range open {
			if got, want := ended(conn), serial == 0xab; got != want {
				t.Errorf("connection of the certificate %x: ended is %v", serial, got)
			}
		}
		f.counts.want(t, 2, nil)
	})
}

// What a peer has shown can be looked at again. Who has shown nothing stays.
func TestRecheckEndsWhatIsRefused(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server()})
		open := map[int64]*visitor{}
		for i, serial := range []int64{0, 5, 6} {
			open[serial] = f.let(t, ca, fmt.Sprint("10.0.0.1:", i), serial)
		}
		f.Recheck(func(certs []*x509.Certificate) error {
			if certs[0].SerialNumber.Int64() == 5 {
				return errors.New("nobody vouches for it")
			}
			return nil
		})
		for serial, v := range open {
			if got, want := v.ended(), serial == 5; got != want {
				t.Errorf("connection of the certificate %x: ended is %v", serial, got)
			}
		}
		f.counts.want(t, 2, nil)
	})
}

// A connection lasts as long as the certificate that it was made with, where that
// is asked for: then its peer shows a newer one.
func TestConnectionEndsWithItsCertificate(t *testing.T) {
	ca := newAuthority(t)
	for _, asked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Config{TLS: ca.server(), EndExpired: asked, Limits: Limits{StrangerTime: 100 * 365 * 24 * time.Hour}})
			open := map[int64]net.Conn{}
			for _, serial := range []int64{0, 5} {
				conn := f.dial("10.0.0.1:1")
				if err := shake(conn, ca.client(serial)); err != nil {
					t.Fatal(err)
				}
				defer func(c net.Conn) { c.Close() }(<-f.accepted)
				open[serial] = conn
			}
			end := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
			time.Sleep(time.Until(end) - expiryLead - time.Minute)
			for serial, conn := range open {
				if ended(conn) {
					t.Errorf("certificate %x: ended too early", serial)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			for serial, conn := range open {
				if got, want := ended(conn), serial == 5 && asked; got != want {
					t.Errorf("certificate %x: ended is %v, want %v", serial, got, want)
				}
			}
		})
	}
}

// A certificate that is revoked while the handshake is made has no connection that
// Cut could find.
func TestRevokedDuringTheHandshake(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{
			TLS:    ca.server(),
			Verify: func(certs []*x509.Certificate) error { return fmt.Errorf("%x was revoked", certs[0].SerialNumber) },
			Reason: func(error) string { return "revoked" },
		})
		conn := f.dial("10.0.0.1:1")
		_ = shake(conn, ca.client(3)) // the client is done before the server
		if !ended(conn) {
			t.Error("the connection is open")
		}
		if err := shake(f.dial("10.0.0.1:2"), ca.client(0)); err != nil {
			t.Errorf("a client without a certificate: %v", err)
		}
		_ = (<-f.accepted).Close()
		f.counts.want(t, 0, map[string]int{"auth revoked": 1})
	})
}

func TestStrangeBytesAreRefused(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		f := start(t, Config{TLS: ca.server()})
		garbage := f.dial("10.0.0.1:1")
		_, _ = garbage.Write([]byte("EHLO example.org\r\n"))
		synctest.Wait()
		f.counts.want(t, 0, map[string]int{"auth bad": 1})
		looks := f.dial("10.0.0.1:2") // whether the port is open, and goes
		synctest.Wait()
		_ = looks.Close()
		synctest.Wait()
		f.counts.want(t, 0, map[string]int{"auth bad": 1})
	})
}

// Who forgets the s of https is told so, and waits for nothing.
func TestPlainHTTPIsToldAboutTLS(t *testing.T) {
	ca := newAuthority(t)
	for _, request := range []string{"GET /metrics HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\n\r\n", "HEAD / HTTP/1.0\r\n\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, Config{TLS: ca.server()})
			conn := f.dial("10.0.0.1:1")
			_, _ = conn.Write([]byte(request))
			got, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 400 ") || !strings.Contains(string(got), "https://") {
				t.Errorf("%q: %q, %v", request, got, err)
			}
			synctest.Wait()
			f.counts.want(t, 0, map[string]int{"auth bad": 1})
		})
	}
}

// Close leaves nothing behind: the bubble would not end.
func TestCloseEndsHandshakes(t *testing.T) {
	ca := newAuthority(t)
	synctest.Test(t, func(t *testing.T) {
		l := New(newPipes(), Config{TLS: ca.server()})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}

		p, c := newPipes(), &counts{}
		l = New(p, Config{TLS: ca.server(), Metrics: c})
		accepting := make(chan error, 1)
		go func() {
			if c, err := l.Accept(); err == nil {
				_ = c.Close()
			}
			_, err := l.Accept()
			accepting <- err
		}()
		silent := p.dial("10.0.0.1:1")
		synctest.Wait()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if !ended(silent) {
			t.Error("a handshake outlives the listener")
		}
		c.want(t, 0, nil)
	})
}

// scripted is a net.Listener that fails as it was told.
type scripted struct {
	*pipes
	errs []error
}

func (s *scripted) Accept() (net.Conn, error) {
	if len(s.errs) == 0 {
		return s.pipes.Accept()
	}
	err := s.errs[0]
	s.errs = s.errs[1:]
	return nil, err
}

type tooManyFiles struct{}

func (tooManyFiles) Error() string   { return "too many open files" }
func (tooManyFiles) Temporary() bool { return true }

// Without a file descriptor the listener waits; what cannot get better it tells.
func TestAcceptFails(t *testing.T) {
	ca := newAuthority(t)
	for _, cfg := range []Config{{}, {TLS: ca.server()}} {
		synctest.Test(t, func(t *testing.T) {
			broken := errors.New("broken")
			l := New(&scripted{newPipes(), []error{tooManyFiles{}, tooManyFiles{}, broken}}, cfg)
			began := time.Now()
			if _, err := l.Accept(); !errors.Is(err, broken) || time.Since(began) != 15*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
