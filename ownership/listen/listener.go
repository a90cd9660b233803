package listen

import (
	"container/list"
	"crypto/x509"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Listener lets in what its limits allow. It is a net.Listener: the connections of
// one with TLS are *tls.Conn, ready to be used.
type Listener struct {
	inner net.Listener
	cfg   Config
	logs  rate.Limiter // of refusals

	ready chan net.Conn // connections whose handshake is done
	begin sync.Once
	done  chan struct{} // closed by Close, or when inner has failed
	tasks sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	failure error // why done is closed
	open    map[*conn]struct{}
	from    map[string]int // connections by address
	shaking list.List      // of *conn, whose handshake is being made, oldest first
	unsaid  int            // refusals that were not logged

	strangers    list.List        // of *conn, oldest first
	strangerFrom map[string]*conn // by address, port included
}

// New returns a Listener on top of inner, which it closes. Nothing runs before the
// first Accept.
func New(inner net.Listener, cfg Config) *Listener {
	return &Listener{
		inner: inner, cfg: cfg.withDefaults(),
		ready: make(chan net.Conn), done: make(chan struct{}),
		open: make(map[*conn]struct{}), from: make(map[string]int), strangerFrom: make(map[string]*conn),
		logs: *rate.NewLimiter(1, 10),
	}
}

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Accept returns the next connection that is let in.
func (l *Listener) Accept() (net.Conn, error) {
	if l.cfg.TLS == nil {
		return l.next()
	}
	l.begin.Do(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.closed {
			l.tasks.Go(l.run)
		}
	})
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		l.mu.Lock()
		defer l.mu.Unlock()
		return nil, l.failure
	}
}

// run accepts, and has the handshakes made beside each other.
func (l *Listener) run() {
	for {
		c, err := l.next()
		if err != nil {
			l.end(err)
			return
		}
		l.tasks.Go(func() { l.shake(c) })
	}
}

// next returns the next connection within the limits.
func (l *Listener) next() (*conn, error) {
	wait := time.Duration(0)
	for {
		raw, err := l.inner.Accept()
		if err != nil {
			if !temporary(err) {
				return nil, err
			}
			// No file descriptor is left, say: others have to end first.
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			if !l.pause(wait) {
				return nil, net.ErrClosed
			}
			continue
		}
		wait = 0
		if c := l.admit(raw); c != nil {
			return c, nil
		}
	}
}

func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// pause waits, and reports false when the listener was closed.
func (l *Listener) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.done:
		return false
	}
}

// end makes Accept return err.
func (l *Listener) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure == nil {
		l.failure = err
		close(l.done)
	}
}

// Close stops listening and ends what has not come out of Accept. Connections that
// have are their users' to end.
func (l *Listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return net.ErrClosed
	}
	l.closed = true
	var cut []*conn
	for e := l.shaking.Front(); e != nil; e = e.Next() {
		cut = append(cut, e.Value.(*conn))
	}
	l.mu.Unlock()
	l.end(net.ErrClosed)
	err := l.inner.Close()
	for _, c := range cut {
		_ = c.Close()
	}
	l.tasks.Wait()
	return err
}

// Cut ends all connections whose peer has shown the certificate of that serial
// number, in hexadecimal digits, or one that it has signed.
func (l *Listener) Cut(serial string) {
	l.mu.Lock()
	var cut []*conn
	for c := range l.open {
		if c.shown(serial) {
			cut = append(cut, c)
		}
	}
	l.mu.Unlock()
	for _, c := range cut {
		_ = c.Close()
	}
	if len(cut) > 0 {
		l.cfg.Logger.Warn("connections of a revoked certificate were ended", "listener", l.cfg.Name, "serial", serial, "connections", len(cut))
	}
}

// Recheck ends all connections whose peer has shown certificates that are not
// believed any more: refuse says why.
func (l *Listener) Recheck(refuse func([]*x509.Certificate) error) {
	l.mu.Lock()
	shown := make(map[*conn][]*x509.Certificate)
	for c := range l.open {
		if len(c.certs) > 0 {
			shown[c] = c.certs
		}
	}
	l.mu.Unlock()
	cut := 0
	for c, certs := range shown {
		if err := refuse(certs); err != nil {
			cut++
			_ = c.Close()
		}
	}
	if cut > 0 {
		l.cfg.Logger.Warn("connections of certificates were ended whose authority is not believed any more", "listener", l.cfg.Name, "connections", cut)
	}
}

// refused logs, not too often, whom this listener did not let in.
func (l *Listener) refused(addr net.Addr, err error) {
	l.mu.Lock()
	l.unsaid++
	unsaid := l.unsaid
	say := l.logs.Allow()
	if say {
		l.unsaid = 0
	}
	l.mu.Unlock()
	if say {
		l.cfg.Logger.Warn("connection was refused", "listener", l.cfg.Name, "from", addr.String(), "error", err, "refused", unsaid)
	}
}
