package gossip

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/hashicorp/memberlist"
)

// Config sets up a Gossip. Name, Label, Meta.Role and Meta.ID are needed, and
// BindAddr unless a Transport is given.
type Config struct {
	// Name is the member's name, Name(role, id). Empty means that of Meta.
	Name string
	// Label names the cluster, 1 to 255 bytes. Members of other labels are
	// refused. It is not a secret.
	Label string
	// Keys encrypt and authenticate everything: the first what is sent, each of them
	// what comes. Each has 16, 24 or 32 bytes; there are at most MaxKeys. None means
	// neither, for as long as Gossip runs. SetKeys changes them.
	Keys [][]byte
	// KeyringVersion is told to the others with the keys' digests.
	KeyringVersion uint64
	// BindAddr is the ip:port or name:port to listen on, TCP and UDP both. Port
	// 0 takes a free one, which LocalAddr then tells.
	BindAddr string
	// Advertise is what others are told, host or host:port; without a port that
	// of BindAddr. Empty means the bound address, or a private one of this
	// machine when BindAddr is unspecified (0.0.0.0).
	Advertise string
	// Seeds are host:port addresses through which the cluster can be found.
	// Names are looked up again at each attempt.
	Seeds []string
	// Meta is what others are told about this member.
	Meta Meta
	// Logger receives news and memberlist's own lines; nil drops them.
	Logger *slog.Logger
	// OnChange is called, never twice at once, after the table of members has
	// changed. Changes while it runs are told by one more call. It must return
	// before Run can.
	OnChange func()
	// OnConflict is told that two addresses claim one name, again and again while
	// they do; nil is allowed. Gossip keeps to the first until it is dead. It is
	// called by the goroutine that calls OnChange. Some that come while it runs
	// may be left out.
	OnConflict func(Conflict)
	// KnownPeersFile keeps the addresses of servers, and of some workers, for a
	// start at which no seed can be reached. Empty means none is kept.
	KnownPeersFile string
	// Observer is told what is worth counting; nil is allowed. Its methods must
	// not block.
	Observer Observer
	// Pace stretches the intervals of probing and gossip, for slow links and for
	// long simulations. 0 and 1 leave them as they are.
	Pace int
	// Transport replaces sockets in tests. Run shuts it down.
	Transport memberlist.Transport
}

// Conflict says that two addresses claim one member's name: somebody was
// started again at another address and its predecessor is not known to be dead
// yet, or two living processes were given one name. Gossip cannot tell; ask
// both addresses directly.
type Conflict struct {
	Name string
	// Mine tells that the name is that of this process.
	Mine bool
	// Addr and Meta are what we hold to be right: our own, when it is Mine.
	Addr string
	Meta Meta
	// OtherAddr and OtherMeta are what somebody else says.
	OtherAddr string
	OtherMeta Meta
}

// Observer counts; *metrics.Gossip is one.
type Observer interface {
	// Members is told how many members are in each status after a change.
	Members(alive, leaving, left, dead int)
	// Rejected is told of a packet or stream that was thrown away: label,
	// decrypt, decode, stranger, overflow or size.
	Rejected(reason string)
	// Rejoined is told of each attempt to reach a missing member.
	Rejoined(ok bool)
	// Conflict is told that two addresses claim one name.
	Conflict()
	// UDPFailed is told that a member answered a stream and no packets.
	UDPFailed()
	// Probed is told how each finished Probe ended.
	Probed(answered bool)
	// Bounced is told that a member that was taken for dead is there after all.
	Bounced()
}

// noObserver counts nothing.
type noObserver struct{}

func (noObserver) Members(_, _, _, _ int) {}
func (noObserver) Rejected(string)        {}
func (noObserver) Rejoined(bool)          {}
func (noObserver) Conflict()              {}
func (noObserver) UDPFailed()             {}
func (noObserver) Probed(bool)            {}
func (noObserver) Bounced()               {}

// withDefaults returns the configuration with empty fields filled, or an error
// that names the field.
func (c Config) withDefaults() (Config, error) {
	if c.Name == "" {
		c.Name = Name(c.Meta.Role, c.Meta.ID)
	}
	if err := c.Meta.checkName(c.Name); err != nil {
		return c, fmt.Errorf("check gossip configuration: %w", err)
	}
	if n := len(c.Label); n < 1 || n > memberlist.LabelMaxSize {
		return c, fmt.Errorf("check gossip configuration: label has %d bytes, must have 1 to %d", n, memberlist.LabelMaxSize)
	}
	if err := CheckKeys(c.Keys); err != nil {
		return c, fmt.Errorf("check gossip configuration: %w", err)
	}
	c.Meta.Keyring = KeyringOf(c.KeyringVersion, c.Keys)
	if c.BindAddr == "" && c.Transport == nil {
		return c, errors.New("check gossip configuration: bind address is empty, must be host:port")
	}
	for _, s := range c.Seeds {
		if err := checkSeed(s); err != nil {
			return c, fmt.Errorf("check gossip configuration: %w", err)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return c, nil
}
