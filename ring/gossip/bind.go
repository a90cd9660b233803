package gossip

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lookupTimeout bounds each look-up of a name.
const lookupTimeout = 2 * time.Second

// advertised is what the configuration says that others are to be told; empty
// fields are left to the transport.
type advertised struct {
	ip   string
	port int
}

// bind opens the sockets and finds out the address that others are told.
func (g *Gossip) bind() error {
	g.transport = g.cfg.Transport
	if g.transport == nil {
		t, err := listen(g.cfg.BindAddr, log.New(newLogWriter(g), "", 0))
		if err != nil {
			return err
		}
		g.transport, g.bindPort = t, t.GetAutoBindPort()
	}
	if err := g.findAdvertised(); err != nil {
		g.releaseTransport()
		return err
	}
	return nil
}

func (g *Gossip) findAdvertised() error {
	if g.cfg.Advertise != "" {
		host, port, err := splitOptionalPort(g.cfg.Advertise, g.bindPort)
		if err != nil {
			return fmt.Errorf("advertise gossip as %q: %w", g.cfg.Advertise, err)
		}
		ip, err := lookupOne(host)
		if err != nil {
			return fmt.Errorf("advertise gossip as %q: %w", g.cfg.Advertise, err)
		}
		g.advertise = advertised{ip: ip.String(), port: port}
	}
	ip, port, err := g.transport.FinalAdvertiseAddr(g.advertise.ip, g.advertise.port)
	if err != nil {
		return fmt.Errorf("find the gossip address to advertise: %w: name one (advertise)", err)
	}
	if ip.IsUnspecified() {
		return fmt.Errorf("find the gossip address to advertise: bound to %s, which nobody can reach: name one (advertise)", ip)
	}
	g.local = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	return nil
}

// listen binds TCP and UDP on one port. A free port is found by taking one for
// TCP and hoping that it is free for UDP too, hence the tries.
func listen(addr string, logger *log.Logger) (*sockets, error) {
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("listen for gossip on %q: %w", addr, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("listen for gossip on %q: port %q is not 0 to 65535", addr, portText)
	}
	if host == "" {
		host = "0.0.0.0"
	}
	ip, err := lookupOne(host)
	if err != nil {
		return nil, fmt.Errorf("listen for gossip on %q: %w", addr, err)
	}
	for tries := 10; ; tries-- {
		t, err := newSockets(ip, int(port), logger)
		if err == nil {
			return t, nil
		}
		// memberlist does not wrap, so the text has to do.
		inUse := errors.Is(err, syscall.EADDRINUSE) || isInUseText(err)
		if port != 0 || tries <= 1 || !inUse {
			return nil, fmt.Errorf("listen for gossip on %q: %w", addr, err)
		}
	}
}

func splitOptionalPort(addr string, port int) (host string, _ int, err error) {
	if ip := strings.Trim(addr, "[]"); isIP(ip) {
		return ip, port, nil
	}
	h, p, err := net.SplitHostPort(addr)
	if err != nil {
		var ae *net.AddrError
		if errors.As(err, &ae) && ae.Err == "missing port in address" {
			return addr, port, nil
		}
		return "", 0, err
	}
	n, err := strconv.ParseUint(p, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("port %q is not 0 to 65535", p)
	}
	if n == 0 {
		return h, port, nil
	}
	return h, int(n), nil
}

// isIP tells whether host is an address, with a zone or without.
func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// lookupOne returns one address of a host, an IPv4 one when there is a choice.
func lookupOne(host string) (net.IP, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	ips, err := lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, ip := range ips {
		if ip4 := ip.To4(); ip4 != nil {
			return ip4, nil
		}
	}
	return ips[0], nil
}

// lookup returns all addresses of a host, at least one. memberlist's own way
// asks the first name server for everything over TCP and waits ten seconds for
// each seed that does not answer.
func lookup(ctx context.Context, host string) ([]net.IP, error) {
	if ip := net.ParseIP(host); ip != nil {
		return []net.IP{ip}, nil
	}
	if err := checkZone(host); err != nil {
		return nil, err
	}
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	ips := make([]net.IP, 0, len(addrs))
	for _, a := range addrs {
		ips = append(ips, a.IP)
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("look up %s: no address", host)
	}
	return ips, nil
}
