package gossip

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// knownPeer is a server or worker and where it was last seen.
type knownPeer struct {
	name, addr string
}

func (p knownPeer) worker() bool {
	role, _, err := splitName(p.name)
	return err == nil && role == RoleWorker
}

func comparePeers(a, b knownPeer) int {
	return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.addr, b.addr))
}

// The file of known peers is text: a comment, then one "name ip:port" a line.
// It is only a help, so what cannot be read is left out.
const (
	peersHeader   = "# servers (s/) and some workers (w/) seen by leasehold gossip; rewritten while running\n"
	maxPeersBytes = 64 << 10
)

func encodePeers(peers []knownPeer) []byte {
	b := []byte(peersHeader)
	for _, p := range peers {
		b = append(b, p.name+" "+p.addr+"\n"...)
	}
	return b
}

// decodePeers returns the peers in b and how many lines were not understood.
func decodePeers(b []byte) (peers []knownPeer, bad int) {
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		// The address is last: a name may contain spaces.
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || len(peers) == maxKnown {
			bad++
			continue
		}
		p := knownPeer{name: strings.TrimSpace(line[:i]), addr: line[i+1:]}
		_, _, err := splitName(p.name)
		if _, addrErr := netip.ParseAddrPort(p.addr); err != nil || addrErr != nil {
			bad++
			continue
		}
		peers = append(peers, p)
	}
	if lines.Err() != nil {
		bad++
	}
	return peers, bad
}

func (g *Gossip) loadPeers() []knownPeer {
	path := g.cfg.KnownPeersFile
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var b []byte
	if err == nil && info.Size() > maxPeersBytes {
		err = fmt.Errorf("file has %d bytes, at most %d are expected", info.Size(), maxPeersBytes)
	}
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		g.log.Warn("read known gossip peers; going on without", "file", path, "error", err)
		return nil
	}
	peers, bad := decodePeers(b)
	if bad > 0 {
		g.log.Warn("known gossip peers: lines left out", "file", path, "lines", bad)
	}
	return peers
}

// savePeers hands the list to saveLoop, replacing one that still waits there.
func (g *Gossip) savePeers(peers []knownPeer) {
	if g.cfg.KnownPeersFile == "" {
		return
	}
	for {
		select {
		case g.saves <- peers:
			return
		default:
		}
		select {
		case <-g.saves:
		default:
		}
	}
}

// saveLoop writes the file apart from everything else: a disk may hang.
func (g *Gossip) saveLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case peers := <-g.saves:
			if err := writePeers(g.cfg.KnownPeersFile, peers); err != nil {
				g.log.Warn("write known gossip peers", "file", g.cfg.KnownPeersFile, "error", err)
			}
		}
	}
}

// writePeers replaces the file in one step. It is not synced: after a power
// loss an old list, or none, does as well.
func writePeers(path string, peers []knownPeer) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(encodePeers(peers))
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
