package listen

import (
	"container/list"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection that is counted.
type conn struct {
	net.Conn
	l    *Listener
	host string
	gone sync.Once

	// Under the listener's lock.
	handshake *list.Element // in shaking; nil: done
	began     time.Time
	gaveWay   bool                // to another one, before the handshake was done
	certs     []*x509.Certificate // that the peer has shown
	expiry    *time.Timer
	strange   *list.Element // in strangers; nil: it is not a stranger's
	since     time.Time     // it is a stranger's
	leave     *time.Timer   // for a stranger

	stranger atomic.Bool // strange is set
}

// Close ends the connection and makes room for another.
func (c *conn) Close() error {
	c.gone.Do(func() { c.l.drop(c) })
	return c.Conn.Close()
}

// drop forgets a connection.
func (l *Listener) drop(c *conn) {
	l.mu.Lock()
	delete(l.open, c)
	if l.from[c.host]--; l.from[c.host] == 0 {
		delete(l.from, c.host)
	}
	l.shakenLocked(c)
	if c.expiry != nil {
		c.expiry.Stop()
	}
	l.knownLocked(c)
	l.mu.Unlock()
	l.cfg.Metrics.Connected(l.cfg.Name, -1)
}

// shakenLocked ends the handshake of a connection.
func (l *Listener) shakenLocked(c *conn) {
	if c.handshake != nil {
		l.shaking.Remove(c.handshake)
		c.handshake = nil
	}
}

func (c *conn) shown(serial string) bool {
	return slices.ContainsFunc(c.certs, func(cert *x509.Certificate) bool { return fmt.Sprintf("%x", cert.SerialNumber) == serial })
}

// admit counts a connection in, or closes it and returns nil.
func (l *Listener) admit(raw net.Conn) *conn {
	c := &conn{Conn: raw, l: l, host: hostOf(raw.RemoteAddr()), began: time.Now()}
	l.mu.Lock()
	slow, stranger, limit := l.makeRoomLocked(c)
	if limit == "" && !l.closed {
		l.open[c] = struct{}{}
		l.from[c.host]++
		if l.cfg.TLS != nil {
			c.handshake = l.shaking.PushBack(c)
		}
	} else if limit == "" {
		limit = "closed"
	}
	l.mu.Unlock()
	if slow != nil {
		_ = slow.Close() // its handshake fails, and is counted, where it is made
	}
	if stranger != nil {
		l.cfg.Metrics.LimitHit("strangers")
		_ = stranger.Close()
	}
	switch limit {
	case "":
		l.cfg.Metrics.Connected(l.cfg.Name, 1)
		return c
	case "closed":
	default:
		l.cfg.Metrics.LimitHit(limit)
		l.refused(raw.RemoteAddr(), l.tooMany(limit, c.host))
	}
	_ = raw.Close()
	return nil
}

// makeRoomLocked names the limit that a new connection would exceed, or finds one
// that is to be closed to make room: one whose handshake has taken long, or else a
// stranger's, or one of those with which an address crowds out others.
func (l *Listener) makeRoomLocked(c *conn) (slow, stranger *conn, limit string) {
	most := l.cfg.Limits
	switch {
	case most.PerAddress > 0 && l.from[c.host] >= most.PerAddress:
		limit = "connections_per_address"
	case most.Connections > 0 && len(l.open) >= most.Connections:
		limit = "connections"
	case l.cfg.TLS != nil && l.shaking.Len() >= most.Handshakes:
		limit = "handshakes"
	default:
		return nil, nil, ""
	}
	for e := l.shaking.Front(); e != nil; e = e.Next() {
		old := e.Value.(*conn)
		if c.began.Sub(old.began) < patience {
			break // the others are younger
		}
		if limit == "connections_per_address" && old.host != c.host {
			continue
		}
		l.giveWayLocked(old)
		return old, nil, ""
	}
	if old := l.strangerInTheWayLocked(c, limit); old != nil {
		return nil, old, ""
	}
	if limit == "connections_per_address" {
		return nil, nil, limit
	}
	if old := crowding(&l.shaking, c.host); old != nil {
		l.giveWayLocked(old)
		return old, nil, ""
	}
	if old := crowding(&l.strangers, c.host); old != nil && limit == "connections" {
		l.knownLocked(old)
		return nil, old, ""
	}
	return nil, nil, limit
}

func (l *Listener) giveWayLocked(c *conn) {
	l.shakenLocked(c)
	c.gaveWay = true
}

// Whoever begins anew as soon as a fair time has passed would have all places again
// before anybody else comes. So an address that has many of the youngest connections
// gives one up for an address that has few.
const (
	crowdLooked = 256 // connections, for each that finds no room
	crowdLeast  = 4
)

// crowding finds, among connections of no proof, the youngest of the address that has
// most of them, if that is far more than the newcomer's has.
func crowding(all *list.List, newcomer string) *conn {
	from := make(map[string]int)
	for e, n := all.Back(), 0; e != nil && n < crowdLooked; e, n = e.Prev(), n+1 {
		from[e.Value.(*conn).host]++
	}
	most := 0
	for _, n := range from {
		most = max(most, n)
	}
	if most < max(crowdLeast, 2*(from[newcomer]+1)) {
		return nil
	}
	e := all.Back()
	for from[e.Value.(*conn).host] != most {
		e = e.Prev()
	}
	return e.Value.(*conn)
}

func (l *Listener) tooMany(limit, host string) error {
	most := l.cfg.Limits
	switch limit {
	case "connections":
		return fmt.Errorf("there are %d connections: at most --max-connections", most.Connections)
	case "handshakes":
		return fmt.Errorf("%d handshakes are under way: at most --max-handshakes", most.Handshakes)
	}
	return fmt.Errorf("%s has %d connections: at most --max-connections-per-address", host, most.PerAddress)
}

// hostOf is an address without its port.
func hostOf(addr net.Addr) string {
	text := addr.String()
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().String()
	}
	if host, _, err := net.SplitHostPort(text); err == nil {
		return host
	}
	return text
}
