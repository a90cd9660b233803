package cluster

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// given has the ports that this process has given away: whoever has one keeps it
// while its server is down.
var given sync.Map

// FreePorts finds n loopback ports that are free for TCP and UDP alike: gossip
// needs both. All are held until the last has been found, so they differ. They
// are below those that the kernel gives to outgoing connections, one of which
// might take a port while its server is down. No port is given twice.
func FreePorts(n int) ([]int, error) {
	var held []io.Closer
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		if tries > 100*n {
			return nil, errors.New("find free ports: too many between 12000 and 32000 are taken")
		}
		port := 12_000 + rand.IntN(20_000)
		if _, twice := given.Load(port); twice {
			continue
		}
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		tcp, err := net.Listen("tcp4", addr)
		if err != nil {
			continue
		}
		held = append(held, tcp)
		udp, err := net.ListenPacket("udp4", addr)
		if err != nil {
			continue
		}
		held = append(held, udp)
		if _, twice := given.LoadOrStore(port, true); !twice {
			ports = append(ports, port)
		}
	}
	return ports, nil
}
