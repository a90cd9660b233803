package worker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"

	"github.com/leasehold-dev/leasehold/metrics"
	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/client"
)

// Values of Config.Gossip other than an address.
const (
	GossipAuto = "auto" // a free port on the address that reaches the servers
	GossipOff  = "off"  // no gossip: fenced takeover waits for the TTL
)

// Limits of what a worker says about itself. The servers hold the same ones.
const (
	MaxNameLen  = 128 // bytes of a worker id or keyspace name
	MaxTextLen  = 256 // bytes of an endpoint or zone
	MaxLabels   = 16
	MaxLabelLen = 128 // bytes of a label's key or value
)

// DefaultShutdownTimeout is Config.ShutdownTimeout when it is 0.
const DefaultShutdownTimeout = 40 * time.Second

// Config of a worker. Only Servers is needed.
type Config struct {
	// Servers are gRPC addresses of the cluster, host:port, separated by
	// commas; without a port, 7400. One that answers is enough to find the
	// leader; give three, to survive the loss of that one.
	Servers string

	// ID names the worker; the host name if empty. It should stay the same over
	// a restart, so that restart_grace and the slot of a returning worker work.
	// Two live processes with one ID: the second is refused. Letters, digits
	// and . _ - :, at most MaxNameLen bytes.
	ID string

	// Endpoint is where others reach the work of this process, as a router
	// tells it to callers. It is not interpreted.
	Endpoint string

	// Zone is where the process runs, for the choice of a replacement.
	Zone string

	// Capacity weighs the worker and is the most partitions it is given, over
	// all keyspaces. 0: no limit.
	Capacity uint32

	// Labels are shown in `leasehold workers ls`.
	Labels map[string]string

	// TLS for the connections to the servers; nil: plaintext. pki.Client makes it
	// of files, which may be renewed while the worker runs: the next connection
	// uses the new ones.
	TLS *tls.Config

	// Credential tells the servers who this is, for a worker without a
	// certificate: client.CredentialFile reads it from a file, also when that
	// changes. It needs TLS.
	Credential client.Credential

	// Gossip is GossipAuto (also if empty), GossipOff, or the host:port to bind.
	// Gossip lets a fenced keyspace be taken over before the TTL is over.
	// Nothing else needs it, and trouble with it never stops the worker. Servers
	// that encrypt it send their keys over the session, if that is encrypted itself
	// or on loopback, or if they run with --insecure.
	Gossip string

	// GossipAdvertise is the host:port that other members reach this worker's
	// gossip at, where it differs from what is bound. Usually empty.
	GossipAdvertise string

	// StopGrace is how long handlers may take to return after their context has
	// ended. It is taken off the deadline: contexts end that much earlier. At
	// most what leaves half of the TTL; 0 is right for handlers that return at
	// once.
	StopGrace time.Duration

	// OnOverrun is called, in a goroutine of its own, when a handler has not
	// returned StopGrace and half the margin after its context ended. The
	// default logs. Whatever it does, the partition is refused until the
	// handler has returned. [ExitOnOverrun] is for resources without a guard.
	OnOverrun func(l *Lease, since time.Duration)

	// ShutdownTimeout bounds an orderly end (Run's context is done, or Leave):
	// after it the contexts that are left end with ErrShutdown, and Run returns
	// at the latest StopGrace and the margin later. 0: DefaultShutdownTimeout.
	// Make it longer than the keyspace's handoff timeout.
	ShutdownTimeout time.Duration

	// Observer hears what happens to leases; nil: nobody.
	Observer *Observer

	// Logger gets structured lines with stable keys; nil: slog.Default().
	Logger *slog.Logger

	// Metrics is where the worker counts; register it once per process. nil:
	// nowhere.
	Metrics *metrics.Worker

	// Clock is the boot clock; nil: bootclock.Boot(). Tests in a synctest
	// bubble give bootclock.Monotonic(). If it has a method Wall() time.Time as
	// well, that is the wall clock it is compared with; otherwise time.Now is.
	Clock bootclock.Clock

	// Dialer opens connections to the servers; nil: TCP.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)

	// GossipTransport replaces the sockets of gossip, for tests and special
	// networks. It is called for each start of gossip, which shuts down what it
	// returns; Gossip says only whether to take part then. nil: TCP and UDP.
	GossipTransport func() (memberlist.Transport, error)

	// Version is shown in `leasehold workers ls`; "" is fine.
	Version string
}

// Observer hears what happens to leases, for evidence and tests. Each field may
// be nil. at is a reading of the boot clock at the event: taken before a
// context became live, and after it ended.
//
// Granted tells of a lease as soon as its grant has been received, before it is
// claimed and before its context is live. Like ContextEnd it is told in order.
//
// ContextStart is called by the handler's goroutine right before the handler;
// HandlerReturn by the same one after it. ContextEnd and KeepAliveAcked are
// called in order by one goroutine of their own, so a slow observer delays
// neither keep-alives nor other leases; of several acknowledgements that wait
// for it only the newest is told.
type Observer struct {
	Granted        func(l *Lease, at time.Duration)
	ContextStart   func(l *Lease, at time.Duration)
	ContextEnd     func(l *Lease, cause error, at time.Duration)
	HandlerReturn  func(l *Lease, err error, at time.Duration)
	KeepAliveAcked func(sent time.Duration) // boot clock when the acknowledged keep-alive was sent
}

// withDefaults fills in what is empty. It reads the host name.
func (c Config) withDefaults() (Config, error) {
	if c.ID == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("read host name for Config.ID: %w", err)
		}
		c.ID = host
	}
	if c.Gossip == "" {
		c.Gossip = GossipAuto
	}
	if c.ShutdownTimeout == 0 {
		c.ShutdownTimeout = DefaultShutdownTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = &Observer{}
	}
	if c.Clock == nil {
		c.Clock = bootclock.Boot()
	}
	return c, nil
}

// Validate says everything that is wrong with the configuration, each error
// naming field, value and limit. Join calls it.
func (c Config) Validate() error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	_, err := client.ParseServers(c.Servers)
	add(err)
	if c.ID != "" { // empty: the host name, looked at by Join
		add(checkName("ID", c.ID))
	}
	add(checkText("Endpoint", c.Endpoint, MaxTextLen))
	add(checkText("Zone", c.Zone, MaxTextLen))
	if len(c.Labels) > MaxLabels {
		add(wrong("Labels", len(c.Labels), fmt.Sprintf("at most %d", MaxLabels)))
	}
	for _, k := range sortedKeys(c.Labels) {
		if k == "" {
			add(wrong("Labels", `key ""`, "must not be empty"))
		}
		add(checkText("Labels key", k, MaxLabelLen))
		add(checkText("Labels value of "+strconv.Quote(clip(k)), c.Labels[k], MaxLabelLen))
	}
	if c.Credential != nil && c.TLS == nil {
		add(fmt.Errorf("Credential without TLS: %w", client.ErrCredentialInPlain))
	}
	switch c.Gossip {
	case "", GossipAuto, GossipOff:
	default:
		add(checkAddr("Gossip", c.Gossip, "auto, off or host:port"))
	}
	if c.GossipAdvertise != "" {
		add(checkAddr("GossipAdvertise", c.GossipAdvertise, "host:port"))
		if c.Gossip == GossipOff {
			add(wrong("Gossip", c.Gossip, fmt.Sprintf("contradicts GossipAdvertise %s: nothing is advertised when gossip is off", c.GossipAdvertise)))
		}
	}
	if c.StopGrace < 0 {
		add(wrong("StopGrace", c.StopGrace, "must not be negative"))
	}
	if c.ShutdownTimeout < 0 {
		add(wrong("ShutdownTimeout", c.ShutdownTimeout, "must not be negative"))
	}
	if c.ShutdownTimeout > 0 && c.StopGrace >= c.ShutdownTimeout {
		add(wrong("StopGrace", c.StopGrace, fmt.Sprintf("contradicts ShutdownTimeout %v: it must be shorter", c.ShutdownTimeout)))
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("worker configuration: %w", errors.Join(errs...))
}

// wrong is an error about one field.
func wrong(field string, value any, limit string) error {
	return fmt.Errorf("%s %v: %s", field, value, limit)
}

func checkAddr(field, addr, want string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%s %q: want %s: %w", field, clip(addr), want, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 && field != "Gossip" {
		return fmt.Errorf("%s %q: want %s with a port of 1…65535", field, clip(addr), want)
	}
	return nil
}

// checkName holds worker ids and keyspace names to the servers' alphabet, which
// survives gossip names, paths, URLs and log lines unchanged.
func checkName(field, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%s %q: must not be empty", field, name)
	case len(name) > MaxNameLen:
		return fmt.Errorf("%s %q: %d bytes: at most %d", field, clip(name), len(name), MaxNameLen)
	case name == "." || strings.Contains(name, ".."):
		return fmt.Errorf("%s %q: must not be . or contain ..", field, clip(name))
	}
	for _, r := range name {
		ok := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:", r)
		if !ok {
			return fmt.Errorf("%s %q: character %q: allowed are letters, digits and . _ - :", field, clip(name), r)
		}
	}
	return nil
}

func checkText(field, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%s %q: %d bytes: at most %d", field, clip(s), len(s), limit)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s %q: not valid UTF-8", field, clip(s))
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s %q: control character %q", field, clip(s), r)
		}
	}
	return nil
}

// clip shortens a value for an error.
func clip(s string) string {
	if len(s) <= 64 {
		return s
	}
	return s[:64] + "…"
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
