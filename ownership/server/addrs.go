package server

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// sameAddrs are those that cannot listen beside an earlier one.
func sameAddrs(all []listenAddr) (twice []listenAddr) {
	for i, a := range all {
		host, port, err := net.SplitHostPort(a.value)
		if err != nil || port == "0" {
			continue
		}
		for _, b := range all[:i] {
			h, p, err := net.SplitHostPort(b.value)
			if err == nil && p == port && (h == host || isWildcard(h) || isWildcard(host)) {
				twice = append(twice, a)
				break
			}
		}
	}
	return twice
}

// splitAddr checks host:port and says how it should look.
func splitAddr(addr string) (host string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", fmt.Errorf("want host:port, for example 127.0.0.1:7400 or [::1]:7400 (%w)", err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("port %q: want 0 to 65535", port)
	}
	return host, checkHost(host)
}

// checkHost refuses what looks like a host and is none that could be told to
// others.
func checkHost(host string) error {
	switch {
	case strings.ContainsAny(host, ", \t"):
		return errors.New("want one address, not a list, for example 10.0.0.1:7400")
	case strings.Contains(host, "%"):
		return errors.New("an address with a zone means something on this machine only: want a global or a loopback one, for example [fd00::1]:7400")
	}
	return nil
}

// checkAdvertise wants what the others can put a port behind.
func checkAdvertise(host string) error {
	if host == "" {
		return nil
	}
	if err := checkHost(host); err != nil {
		return err
	}
	if strings.Contains(host, "]:") || isWildcard(host) || net.ParseIP(strings.Trim(host, "[]")) == nil && strings.Contains(host, ":") {
		return errors.New("want a host or an IP without a port, not a wildcard, for example 10.0.0.1")
	}
	return nil
}

// checkJoin wants where somebody else can be.
func checkJoin(addr string) error {
	host, err := splitAddr(addr)
	switch _, port, _ := net.SplitHostPort(addr); {
	case err != nil:
		return err
	case isWildcard(host):
		return errors.New("a wildcard is nobody's address, want for example 10.0.0.1:7402")
	case port == "0":
		return errors.New("port 0 is nobody's, want that of the other's --gossip-addr, for example 10.0.0.1:7402")
	}
	return nil
}

func isWildcard(host string) bool {
	host = strings.Trim(host, "[]")
	if host == "" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// advertised is what others dial: the bound port, under Advertise if set.
func (c *Config) advertised(bound string) string {
	host, port, err := net.SplitHostPort(bound)
	if err != nil {
		return bound
	}
	if c.Advertise != "" {
		host = strings.Trim(c.Advertise, "[]")
	}
	return net.JoinHostPort(host, port)
}

// sameAddr tells whether two host:port are one, as far as their text shows.
func sameAddr(a, b string) bool {
	ah, ap, aerr := net.SplitHostPort(a)
	bh, bp, berr := net.SplitHostPort(b)
	if aerr != nil || berr != nil || ap != bp {
		return false
	}
	return ah == bh || net.ParseIP(ah) != nil && net.ParseIP(ah).Equal(net.ParseIP(bh)) || ah == "localhost" && isLoopback(bh)
}
