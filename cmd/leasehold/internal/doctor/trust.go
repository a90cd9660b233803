package doctor

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// How long before its end a certificate is talked of. An authority's needs more
// time: all that it has signed ends with it.
const (
	renewServer    = 14 * 24 * time.Hour
	renewAuthority = 60 * 24 * time.Hour
)

// certificates finds those of a server that have run out, or will soon.
func (e *exam) certificates(s *Server) {
	h := s.health()
	for _, c := range h.GetCertificates() {
		if c.GetNotAfter() == nil {
			continue
		}
		left := c.GetNotAfter().AsTime().Sub(h.GetWallClock().AsTime())
		f := &pb.Finding{
			Severity: Warning, Code: "certificate_expiring", Subject: "server " + s.name(),
			What:     "the server's certificate runs out soon",
			Evidence: fmt.Sprintf("%s in %s until %s", c.GetSubject(), c.GetFile(), c.GetNotAfter().AsTime().UTC().Format("2006-01-02 15:04 UTC")),
			Why:      "from then on workers, clients and the other servers refuse it",
			Next:     fmt.Sprintf("leasehold tls issue --renew %s, and put the files where the old ones are: they are used without a restart", cmpText(s.ID, "ID")),
		}
		limit := renewServer
		switch c.GetUse() {
		case "list":
			f.What = "the server's list of revoked certificates runs out soon"
			f.Why = "from then on the server does not start again, as it cannot tell whether it is the newest"
			f.Next = "leasehold tls revoke, and copy crl.pem over the old one on each server: it is used without a restart"
		case "authority":
			limit = renewAuthority
			f.What = "an authority of the server runs out soon"
			f.Why = "with it all certificates end that it has signed"
			f.Next = "make a new authority, let all files have both, then renew the certificates: deploy/OPERATIONS.md, certificates"
		}
		switch {
		case left <= 0:
			f.Severity, f.Code = Critical, "certificate_expired"
			f.What = strings.Replace(f.What, "runs out soon", "has run out", 1)
			f.Why = strings.Replace(f.Why, "from then on", "since then", 1)
		case left > limit:
			continue
		}
		e.find(f)
	}
}

// plaintext finds servers that believe everybody, where others than this machine
// reach them.
func (e *exam) plaintext() {
	var open []string
	for _, s := range e.up() {
		if s.Second.Status.GetTls() {
			continue
		}
		for _, p := range e.peers() {
			if p.GetServerId() == s.ID && !onLoopback(p.GetGrpcAddr()) {
				open = append(open, s.name()+" at "+p.GetGrpcAddr())
			}
		}
	}
	if len(open) == 0 {
		return
	}
	e.find(&pb.Finding{
		Severity: Notice, Code: "plaintext", Subject: "cluster",
		What: "the servers run without TLS and do not ask who calls", Evidence: strings.Join(open, ", "),
		Why:  "whoever reaches the ports can read and change everything, and join",
		Next: "keep the network closed, or give the servers certificates: leasehold tls --help",
	})
}

func onLoopback(addr string) bool {
	host, err := netip.ParseAddrPort(addr)
	return err == nil && host.Addr().IsLoopback() || strings.HasPrefix(addr, "localhost:")
}

// unseen says what could not be looked at for want of rights, so that nobody takes
// silence for health.
func (e *exam) unseen() {
	what := map[string]bool{}
	var evidence string
	see := func(thing string, err error) {
		if refused(err) {
			what[thing] = true
			evidence = errText(err)
		}
	}
	for _, s := range e.Servers {
		see("the servers", s.Second.Err)
		see("the members", s.Second.PeersErr)
		see("disks, clocks and certificates", s.Second.HealthErr)
	}
	see("keyspaces, workers and partitions", e.ListsError)
	if len(what) == 0 {
		return
	}
	e.find(&pb.Finding{
		Severity: Warning, Code: "not_allowed", Subject: "leasehold doctor",
		What: "not everything could be looked at: " + strings.Join(slices.Sorted(maps.Keys(what)), ", "), Evidence: evidence,
		Why:  "whatever is wrong with what was not seen is not said here",
		Next: "call it as a reader or operator: --tls-cert-file and --tls-key-file, or --credential-file",
	})
}

// refused tells whether an error is a refusal by who one is.
func refused(err error) bool {
	switch client.Detail(err).GetReason() {
	case pb.ReasonUnauthenticated, pb.ReasonDenied:
		return true
	}
	return false
}
