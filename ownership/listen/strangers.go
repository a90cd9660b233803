package listen

import (
	"errors"
	"time"
)

// A stranger is somebody at the other end of a TLS connection who has shown no
// certificate and has not proven yet, by a call, who they are: for as long as they
// are one they get little room and little time, and are the first to go where others
// want in. Those who only ask whether a server is well stay strangers.
const (
	// strangerBytes is what one may say over gRPC, which holds what it has been told
	// of calls that are not complete.
	strangerBytes = 64 << 10
	// DefaultStrangerTime is how long one may stay.
	DefaultStrangerTime = 2 * time.Minute
)

// errStranger ends a connection of one who talks too much.
var errStranger = errors.New("the client has sent more than anybody may who has not proven who they are")

// strangeLocked makes a connection that of a stranger.
func (l *Listener) strangeLocked(c *conn) {
	c.stranger.Store(true)
	c.since = time.Now()
	c.strange = l.strangers.PushBack(c)
	l.strangerFrom[c.RemoteAddr().String()] = c
	c.leave = time.AfterFunc(l.cfg.Limits.StrangerTime, func() {
		if c.stranger.Load() {
			l.cfg.Metrics.LimitHit("strangers")
			_ = c.Close()
		}
	})
}

// knownLocked ends that, because they are known now or gone.
func (l *Listener) knownLocked(c *conn) {
	if c.strange == nil {
		return
	}
	c.stranger.Store(false)
	c.leave.Stop()
	l.strangers.Remove(c.strange)
	c.strange = nil
	if from := c.RemoteAddr().String(); l.strangerFrom[from] == c {
		delete(l.strangerFrom, from)
	}
}

// Proven tells that whoever is at an address, its port included, has proven who
// they are.
func (l *Listener) Proven(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.strangerFrom[from]; c != nil {
		l.knownLocked(c)
	}
}

// strangerInTheWayLocked finds the stranger who gives way to c: the one who is there
// for longest, if that is a fair time.
func (l *Listener) strangerInTheWayLocked(c *conn, limit string) *conn {
	if limit == "handshakes" {
		return nil
	}
	for e := l.strangers.Front(); e != nil; e = e.Next() {
		old := e.Value.(*conn)
		if c.began.Sub(old.since) < patience {
			break // the others are younger
		}
		if limit == "connections" || old.host == c.host {
			l.knownLocked(old)
			return old
		}
	}
	return nil
}
