package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// MaxMeta is the most that a member may say of itself, in encoded bytes. Every
// packet about the member carries it: aim at 100.
const MaxMeta = 512

// Meta is what a member says of itself.
type Meta struct {
	Role Role
	ID   string
	// Boot is the boot generation: higher each time a process starts under
	// this ID, so that news of an older process can be told apart.
	Boot uint64
	// Addresses as host:port, empty where there is none.
	GRPCAddr, RaftAddr, HTTPAddr string
	Version                      string
	// Expect is a server's --bootstrap-expect, 0 when it has none.
	Expect int
	// HasState tells that a server has a Raft log: no cluster is to be formed.
	HasState bool
	// Leaving announces a clean departure.
	Leaving bool
	// FormationHash lets servers that are about to form a cluster see that
	// they agree on its settings.
	FormationHash string
	// Session is a worker's session, 0 before it has one.
	Session uint64
	// ClusterID of the cluster that the member belongs to; empty before it is
	// known.
	ClusterID string
	// Store is the id of a server's data directory: a wiped server has another.
	Store string
	// Feature is the highest feature level that a server knows.
	Feature uint32
	// Keyring is what the member has installed. Gossip fills it in.
	Keyring Keyring
}

// The encoding, all integers unsigned varints unless said otherwise:
//
//	byte 0     version (1)
//	byte 1-4   check of the cluster label, big endian: see clusterCheck
//	byte 5     role: 1 server, 2 worker
//	byte 6     flags: 1 has state, 2 leaving
//	boot, session, expect
//	id, gRPC address, Raft address, HTTP address, version, formation hash,
//	cluster id, store: each one length byte and the bytes
//	feature level
//	version of the keyring, one byte with the number of its keys, their digests of
//	four bytes each (not there: older than the keyring)
//	…          fields of later releases; ignored
const metaVersion = 1

const (
	flagHasState = 1 << iota
	flagLeaving
)

const (
	maxExpect  = 1 << 20
	maxFeature = 1 << 20
)

var (
	errMetaShort    = errors.New("meta is cut short")
	errOtherCluster = errors.New("it belongs to another cluster: labels differ")
)

// clusterCheck is a second guard beside memberlist's label. The label guards
// packets; this one guards what a member that passed has been told by others.
func clusterCheck(label string) uint32 {
	return uint32(xxhash.Sum64String("leasehold gossip " + label))
}

// encodeMeta returns the bytes to gossip or an error that names the field.
func encodeMeta(label string, m Meta) ([]byte, error) {
	var role byte
	switch m.Role {
	case RoleServer:
		role = 1
	case RoleWorker:
		role = 2
	default:
		return nil, fmt.Errorf("encode meta: role is %q, must be %q or %q", m.Role, RoleServer, RoleWorker)
	}
	if m.Expect < 0 || m.Expect > maxExpect {
		return nil, fmt.Errorf("encode meta: expect is %d, must be 0 to %d", m.Expect, maxExpect)
	}
	flags := byte(0)
	if m.HasState {
		flags |= flagHasState
	}
	if m.Leaving {
		flags |= flagLeaving
	}
	b := make([]byte, 0, 128)
	b = append(b, metaVersion)
	b = binary.BigEndian.AppendUint32(b, clusterCheck(label))
	b = append(b, role, flags)
	b = binary.AppendUvarint(b, m.Boot)
	b = binary.AppendUvarint(b, m.Session)
	b = binary.AppendUvarint(b, uint64(m.Expect))
	for _, f := range m.texts() {
		if len(*f.value) > 255 {
			return nil, fmt.Errorf("encode meta: %s has %d bytes, must have at most 255", f.name, len(*f.value))
		}
		b = append(b, byte(len(*f.value)))
		b = append(b, *f.value...)
	}
	b = binary.AppendUvarint(b, uint64(m.Feature))
	b = m.Keyring.append(b)
	if len(b) > MaxMeta {
		return nil, fmt.Errorf("encode meta: %d bytes, must be at most %d: shorten the id or the addresses", len(b), MaxMeta)
	}
	return b, nil
}

type metaText struct {
	name  string
	value *string
}

// texts lists the text fields in wire order.
func (m *Meta) texts() []metaText {
	return []metaText{
		{"id", &m.ID}, {"grpc address", &m.GRPCAddr}, {"raft address", &m.RaftAddr},
		{"http address", &m.HTTPAddr}, {"version", &m.Version}, {"formation hash", &m.FormationHash},
		{"cluster id", &m.ClusterID}, {"store", &m.Store},
	}
}

// decodeMeta reads what encodeMeta wrote. It keeps no reference to b.
func decodeMeta(label string, b []byte) (Meta, error) {
	var m Meta
	if len(b) < 7 {
		return m, errMetaShort
	}
	if b[0] != metaVersion {
		return m, fmt.Errorf("meta has version %d, this release knows %d", b[0], metaVersion)
	}
	if binary.BigEndian.Uint32(b[1:]) != clusterCheck(label) {
		return m, errOtherCluster
	}
	switch b[5] {
	case 1:
		m.Role = RoleServer
	case 2:
		m.Role = RoleWorker
	default:
		return m, fmt.Errorf("meta has unknown role %d", b[5])
	}
	m.HasState, m.Leaving = b[6]&flagHasState != 0, b[6]&flagLeaving != 0
	return m, m.decodeRest(b[7:])
}

func (m *Meta) decodeRest(b []byte) error {
	var expect uint64
	for _, n := range []*uint64{&m.Boot, &m.Session, &expect} {
		v, size := binary.Uvarint(b)
		if size <= 0 {
			return errMetaShort
		}
		*n, b = v, b[size:]
	}
	if expect > maxExpect {
		return fmt.Errorf("meta expects %d servers, must be at most %d", expect, maxExpect)
	}
	m.Expect = int(expect)
	for _, f := range m.texts() {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return errMetaShort
		}
		*f.value, b = string(b[1:1+int(b[0])]), b[1+int(b[0]):]
	}
	feature, size := binary.Uvarint(b)
	if size <= 0 || feature > maxFeature {
		return errMetaShort
	}
	m.Feature = uint32(feature)
	if b = b[size:]; len(b) == 0 {
		return nil // of a release without keyrings
	}
	return m.Keyring.decode(b)
}

func (k Keyring) append(b []byte) []byte {
	b = binary.AppendUvarint(b, k.Version)
	b = append(b, k.count)
	for _, d := range k.digests[:k.count] {
		b = append(b, d[:]...)
	}
	return b
}

func (k *Keyring) decode(b []byte) error {
	version, size := binary.Uvarint(b)
	if size <= 0 || len(b) == size {
		return errMetaShort
	}
	n := int(b[size])
	if n > MaxKeys {
		return fmt.Errorf("meta tells of %d gossip keys, must be at most %d", n, MaxKeys)
	}
	b = b[size+1:]
	if len(b) < n*len(Digest{}) {
		return errMetaShort
	}
	k.Version, k.count = version, uint8(n)
	for i := range n {
		k.digests[i] = Digest(b[i*len(Digest{}):])
	}
	return nil
}

// checkName tells whether the meta belongs to the member of that name.
func (m Meta) checkName(name string) error {
	role, id, err := splitName(name)
	if err != nil {
		return err
	}
	if role != m.Role || id != m.ID {
		return fmt.Errorf("name %.64q does not belong to %s %.64q", name, m.Role, m.ID)
	}
	return nil
}
