package auth

import (
	"container/list"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	failuresPerSecond = 5
	failuresAtOnce    = 10
	// linesAtOnce bounds the log for all together: who makes up a name for each login
	// fails with every one of them for the first time.
	linesAtOnce = 50
	// maxFailing bounds how many are counted, about 1 MB: then who has failed
	// longest ago is forgotten.
	maxFailing = 4096
)

// limiter bounds how often one address fails with one credential. It knows of
// failures only: who presents what is valid never meets it.
type limiter struct {
	now func() time.Time

	mu     sync.Mutex
	byWhom map[failing]*list.Element
	recent *list.List // of *failures, the newest first
}

type failing struct{ who, addr string }

type failures struct {
	of   failing
	rate *rate.Limiter
}

func newLimiter(now func() time.Time) *limiter {
	return &limiter{now: now, byWhom: map[failing]*list.Element{}, recent: list.New()}
}

// allow counts one failure, and reports whether it is within the limit.
func (l *limiter) allow(who, from string) bool {
	if len(who) > maxWho {
		who = who[:maxWho]
	}
	of := failing{who, network(from)}
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.byWhom[of]
	if ok {
		l.recent.MoveToFront(e)
	} else {
		of.who = strings.Clone(who) // it is a part of a request, which would stay as well
		if l.recent.Len() >= maxFailing {
			oldest := l.recent.Back()
			delete(l.byWhom, l.recent.Remove(oldest).(*failures).of)
		}
		e = l.recent.PushFront(&failures{of, rate.NewLimiter(failuresPerSecond, failuresAtOnce)})
		l.byWhom[of] = e
	}
	return e.Value.(*failures).rate.AllowN(l.now(), 1)
}

// maxWho is longer than the names of credentials are.
const maxWho = 128

// network is the host of an address, of IPv6 the network that one site has.
func network(from string) string {
	ap, err := netip.ParseAddrPort(from)
	if err != nil {
		return "" // not from a network: all of them together
	}
	addr := ap.Addr().Unmap()
	if addr.Is6() {
		p, err := addr.WithZone("").Prefix(64)
		if err == nil {
			return p.String()
		}
	}
	return addr.String()
}
