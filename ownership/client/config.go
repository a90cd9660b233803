package client

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Defaults and bounds of a Config.
const (
	// DefaultPort is taken where an address names none.
	DefaultPort = 7400
	// DefaultTimeout bounds a call whose context has no deadline.
	DefaultTimeout = 10 * time.Second
)

// Config says where the cluster is and how to talk to it.
type Config struct {
	// Servers is a list of gRPC addresses, "10.0.0.1:7400,10.0.0.2:7400". One
	// is enough to find the leader; more survive the loss of that one.
	Servers string

	// Timeout bounds each unary call whose context has no deadline, retries
	// included, and the choice of a server for a stream. 0 is DefaultTimeout.
	Timeout time.Duration

	// Patience, when not 0, ends a call with an *UnreachableError as soon as
	// no server at all has answered for that long, however much time its
	// context has left. For people who wait; programs have more.
	Patience time.Duration

	// TLS, when not nil, encrypts connections and verifies servers: pki.Client
	// makes it of the files of a certificate and its authority.
	TLS *tls.Config

	// Credential, when not nil, tells the servers with each call who calls, for
	// those without a certificate: see CredentialFile. It needs TLS, because
	// whoever hears a token can use it.
	Credential Credential

	// UserAgent is told to the servers, before gRPC's own.
	UserAgent string

	// Logger hears of changes of server at debug level. nil is silent.
	Logger *slog.Logger

	// Dialer replaces TCP, for tests and special networks. nil is net.Dialer;
	// a proxy from the environment is never used.
	Dialer func(ctx context.Context, addr string) (net.Conn, error)
}

// ParseServers splits and checks a list of server addresses. A missing port is
// DefaultPort; IPv6 addresses need brackets, because "fd00::1:7400" is itself
// one. Errors name the entry and show a form that works.
func ParseServers(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, fmt.Errorf("servers: empty, want for example 127.0.0.1:%d", DefaultPort)
	}
	var out []string
	for entry := range strings.SplitSeq(list, ",") {
		addr, err := parseServer(strings.TrimSpace(entry))
		if err != nil {
			return nil, fmt.Errorf("servers %q: %w", list, err)
		}
		if !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out, nil
}

func parseServer(s string) (string, error) {
	example := fmt.Sprintf("want host:port, for example 10.0.0.1:%d or [::1]:%d", DefaultPort, DefaultPort)
	switch {
	case s == "":
		return "", fmt.Errorf("an entry is empty, %s", example)
	case strings.Contains(s, "://"):
		return "", fmt.Errorf("%q is a URL, %s", s, example)
	case strings.ContainsAny(s, " \t\r\n/\"'"):
		return "", fmt.Errorf("%q has a character no address has, %s", s, example)
	}
	if a, err := netip.ParseAddr(s); err == nil && a.Is6() {
		return "", fmt.Errorf("%q is IPv6 without brackets, want for example [%s]:%d", s, s, DefaultPort)
	}
	if !strings.Contains(s, ":") || strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		s = fmt.Sprintf("%s:%d", s, DefaultPort)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", fmt.Errorf("%q is not an address, %s", s, example)
	}
	if host == "" {
		return "", fmt.Errorf("%q names no host, %s", s, example)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", fmt.Errorf("%q has no port between 1 and 65535, %s", s, example)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

func (c Config) validate() (Config, []string, error) {
	servers, err := ParseServers(c.Servers)
	if err != nil {
		return c, nil, err
	}
	if c.Credential != nil && c.TLS == nil {
		return c, nil, ErrCredentialInPlain
	}
	if c.Timeout < 0 {
		return c, nil, fmt.Errorf("timeout %v: below 0", c.Timeout)
	}
	if c.Patience < 0 {
		return c, nil, fmt.Errorf("patience %v: below 0", c.Patience)
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dialer == nil {
		d := &net.Dialer{}
		c.Dialer = func(ctx context.Context, addr string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	return c, servers, nil
}
