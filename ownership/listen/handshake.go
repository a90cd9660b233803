package listen

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// errSlow is what a handshake says that has not been done in time, or has given
// way.
var errSlow = errors.New("the TLS handshake took too long")

// shake makes the handshake of a connection and hands it to Accept.
func (l *Listener) shake(c *conn) {
	t := tls.Server(c, l.cfg.TLS)
	err := c.SetDeadline(c.began.Add(l.cfg.Limits.HandshakeTimeout))
	if err == nil {
		err = t.Handshake()
	}
	if err == nil {
		err = l.believe(c, t)
	}
	if err != nil {
		l.failed(c, err)
		answerPlain(c, err)
		_ = c.Close()
		return
	}
	select {
	case l.ready <- t:
	case <-l.done:
		_ = c.Close()
	}
}

// plainAnswer is for somebody who sends HTTP in the clear: a browser, curl or
// Prometheus whose address begins with http://.
const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"this port speaks TLS: begin the address with https://, and trust the cluster's authority (curl --cacert ca.pem)\n"

// answerPlain tells a peer that begins with a request of HTTP that TLS is spoken
// here. Others could not read it.
func answerPlain(c *conn, err error) {
	var header tls.RecordHeaderError
	if !errors.As(err, &header) {
		return
	}
	switch string(header.RecordHeader[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO":
		_, _ = io.WriteString(c, plainAnswer) // within the deadline of the handshake
	}
}

// believe notes what a peer has shown: from here on Cut and Recheck find the
// connection.
func (l *Listener) believe(c *conn, t *tls.Conn) error {
	certs := t.ConnectionState().PeerCertificates
	l.mu.Lock()
	c.certs = certs
	l.shakenLocked(c)
	gaveWay := c.gaveWay
	if _, open := l.open[c]; open {
		switch {
		case len(certs) == 0:
			l.strangeLocked(c)
		case l.cfg.EndExpired:
			c.expiry = time.AfterFunc(untilExpiry(certs[0]), func() { l.expire(c) })
		}
	}
	l.mu.Unlock()
	if gaveWay {
		return errSlow
	}
	if len(certs) > 0 && l.cfg.Verify != nil {
		if err := l.cfg.Verify(certs); err != nil {
			return err
		}
	}
	return c.SetDeadline(time.Time{})
}

// expiryLead is how long before its certificate runs out a connection ends: so that
// nobody who has a newer one makes a call with the old.
const expiryLead = time.Second

// untilExpiry is how long a connection lasts. One that is made with the very last of
// a certificate has all of it.
func untilExpiry(cert *x509.Certificate) time.Duration {
	left := time.Until(cert.NotAfter)
	if left > 2*expiryLead {
		left -= expiryLead
	}
	return left
}

func (l *Listener) expire(c *conn) {
	l.cfg.Logger.Info("a connection was ended whose certificate runs out", "listener", l.cfg.Name, "from", c.RemoteAddr().String())
	_ = c.Close()
}

// failed counts a handshake that was not done.
func (l *Listener) failed(c *conn, err error) {
	l.mu.Lock()
	closed, gaveWay := l.closed, c.gaveWay
	l.mu.Unlock()
	switch {
	case closed:
	case gaveWay, errors.Is(err, os.ErrDeadlineExceeded):
		l.cfg.Metrics.LimitHit("handshakes")
		l.refused(c.RemoteAddr(), errSlow)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		// It went by itself: somebody who only wanted to know whether the port is open.
	case ofThePeer(err):
		l.refused(c.RemoteAddr(), fmt.Errorf("the other side ends the handshake, it does not believe this server's certificate or speaks no TLS 1.3: %w", err))
	default:
		l.cfg.Metrics.AuthFailed(l.cfg.Reason(err))
		l.refused(c.RemoteAddr(), err)
	}
}

// ofThePeer reports whether it is the other side that has ended a handshake.
func ofThePeer(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}
