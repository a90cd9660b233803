package cluster

import (
	"errors"
	"fmt"
	"net"
)

// freePorts finds n loopback ports that are free for TCP and UDP alike: gossip
// needs both. All are held until the last has been found, so they differ. The
// kernel may give one away before the child binds it; the child then says so
// and is started again.
func freePorts(n int) ([]int, error) {
	var held []interface{ Close() error }
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		if tries > 10*n {
			return nil, errors.New("find free ports: too many are taken")
		}
		tcp, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		held = append(held, tcp)
		port := tcp.Addr().(*net.TCPAddr).Port
		udp, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		held = append(held, udp)
		ports = append(ports, port)
	}
	return ports, nil
}
