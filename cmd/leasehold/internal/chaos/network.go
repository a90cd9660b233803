package chaos

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Network is a network of this machine's own: each host is a network
// namespace with one address, all on one bridge. The bridge is in a namespace
// too, out of reach of what this machine filters. The driver has an address
// on it, and is never cut off.
//
//	host s1 ─ veth ─┐
//	host s2 ─ veth ─┤ bridge, in a namespace ─ veth ─ this machine: the driver
//	host w1 ─ veth ─┘
//
// Everything is named after the process that made it, so that what a killed
// one has left is found and removed by the next.
type Network struct {
	prefix string // lhc and the process id
	subnet string // 198.18.n, of the range for tests of networks
	hosts  map[string]int
	cut    map[string]bool // hosts that drop something
}

// ErrNoNetwork says that this machine does not let us make a network.
var ErrNoNetwork = errors.New("no network of our own")

const prefix = "lhc"

// OpenNetwork makes a network without hosts. It needs root, ip and iptables.
func OpenNetwork() (*Network, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: not root", ErrNoNetwork)
	}
	for _, tool := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoNetwork, err)
		}
	}
	if err := removeLeftovers(); err != nil {
		return nil, err
	}
	pid := os.Getpid()
	n := &Network{prefix: prefix + strconv.Itoa(pid), subnet: fmt.Sprintf("198.18.%d", pid%256), hosts: map[string]int{}, cut: map[string]bool{}}
	err := n.commands(
		"netns add SWITCH",
		"-n SWITCH link add br0 type bridge",
		"-n SWITCH link set br0 up",
		"link add VETH type veth peer name driver netns SWITCH",
		"-n SWITCH link set dev driver master br0 up",
		"addr add DRIVER/24 dev VETH",
		"link set VETH up",
	)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrNoNetwork, err), n.Close())
	}
	return n, nil
}

// commands runs ip once for each line. Capitals stand for this network's names.
func (n *Network) commands(lines ...string) error {
	names := strings.NewReplacer("SWITCH", n.prefix+"-sw", "VETH", n.prefix, "DRIVER", n.subnet+".1")
	for _, line := range lines {
		if err := run("ip", strings.Fields(names.Replace(line))...); err != nil {
			return err
		}
	}
	return nil
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Add makes a host and returns its address.
func (n *Network) Add(host string) (addr string, err error) {
	number := len(n.hosts) + 10
	if number > 254 {
		return "", fmt.Errorf("add host %s: the network is full", host)
	}
	n.hosts[host] = number
	ns, addr := n.namespace(host), n.Addr(host)
	err = n.commands(
		"netns add "+ns,
		"link add eth0 netns "+ns+" type veth peer name "+host+" netns SWITCH",
		"-n SWITCH link set dev "+host+" master br0 up",
		"-n "+ns+" addr add "+addr+"/24 dev eth0",
		"-n "+ns+" link set eth0 up",
		"-n "+ns+" link set lo up",
	)
	if err != nil {
		return "", fmt.Errorf("add host %s: %w", host, err)
	}
	return addr, nil
}

func (n *Network) namespace(host string) string { return n.prefix + "-" + host }

// Addr is the address of a host.
func (n *Network) Addr(host string) string { return n.subnet + "." + strconv.Itoa(n.hosts[host]) }

// Wrap is the command that runs another one on a host.
func (n *Network) Wrap(host string) []string {
	return []string{"ip", "netns", "exec", n.namespace(host)}
}

// Hosts are all but the driver, in no order.
func (n *Network) Hosts() []string {
	var all []string
	for h := range n.hosts {
		all = append(all, h)
	}
	return all
}

// Drop has a host drop, from now on, whatever comes from others. It hears
// nothing of them, and they are not told.
func (n *Network) Drop(at string, from ...string) error {
	var addrs []string
	for _, h := range from {
		if h != at {
			addrs = append(addrs, n.Addr(h))
		}
	}
	if len(addrs) == 0 {
		return nil
	}
	n.cut[at] = true
	return n.iptables(at, "-A", "INPUT", "-s", strings.Join(addrs, ","), "-j", "DROP")
}

// Cut drops whatever goes between two groups of hosts.
func (n *Network) Cut(a, b []string) error {
	var errs []error
	for _, h := range a {
		errs = append(errs, n.Drop(h, b...))
	}
	for _, h := range b {
		errs = append(errs, n.Drop(h, a...))
	}
	return errors.Join(errs...)
}

// Heal drops nothing any more.
func (n *Network) Heal() error {
	var errs []error
	for h := range n.cut {
		errs = append(errs, n.iptables(h, "-F", "INPUT"))
	}
	clear(n.cut)
	return errors.Join(errs...)
}

func (n *Network) iptables(host string, args ...string) error {
	return run("ip", append([]string{"netns", "exec", n.namespace(host), "iptables", "-w", "5"}, args...)...)
}

// Close removes the network. The processes on it should have ended.
func (n *Network) Close() error { return remove(n.prefix) }

// remove removes the namespaces of a prefix, and with them their rules and all
// ends of their links.
func remove(prefix string) error {
	entries, err := os.ReadDir("/run/netns")
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	var errs []error
	// A namespace goes a moment after its name. The driver's link must not: the
	// next network may have the same.
	if _, err := net.InterfaceByName(prefix); err == nil {
		errs = append(errs, run("ip", "link", "del", prefix))
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix+"-") {
			errs = append(errs, run("ip", "netns", "del", e.Name()))
		}
	}
	return errors.Join(errs...)
}

// removeLeftovers removes the networks of processes that have ended.
func removeLeftovers() error {
	entries, err := os.ReadDir("/run/netns")
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("list network namespaces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		owner, _, ok := strings.Cut(strings.TrimPrefix(e.Name(), prefix), "-")
		pid, err := strconv.Atoi(owner)
		if !ok || err != nil || !strings.HasPrefix(e.Name(), prefix) || syscall.Kill(pid, 0) == nil {
			continue
		}
		errs = append(errs, remove(prefix+owner))
	}
	return errors.Join(errs...)
}
