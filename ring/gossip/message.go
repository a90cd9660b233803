package gossip

import (
	"encoding/binary"
	"errors"
)

// message is what members send each other for Probe. It travels as a user
// message of memberlist, so it has the label and, with a key, is encrypted and
// authenticated.
//
//	byte 0     version (1)
//	byte 1     kind
//	byte 2-9   number of the question, big endian, drawn at random
//	from, target: each one length byte and the bytes
type message struct {
	kind   kind
	id     uint64
	from   string // who sends it: a member's name
	target string // who is asked about
}

type kind byte

const (
	kindPing kind = 1 // target, are you there? By stream, where packets are lost
	kindPong kind = 2 // target says: I am
	kindAsk  kind = 3 // would you ask target?
	kindYes  kind = 4 // target has answered me
)

const (
	messageVersion = 1
	messageHead    = 10
)

var errMessage = errors.New("probe message is malformed")

func (m message) encode() []byte {
	b := make([]byte, 0, messageHead+2+len(m.from)+len(m.target))
	b = append(b, messageVersion, byte(m.kind))
	b = binary.BigEndian.AppendUint64(b, m.id)
	for _, s := range []string{m.from, m.target} {
		s = s[:min(len(s), 255)] // no name is that long: meta has room for 255 bytes of id
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

// decodeMessage reads what encode wrote; it keeps no reference to b.
func decodeMessage(b []byte) (message, error) {
	if len(b) < messageHead || b[0] != messageVersion {
		return message{}, errMessage
	}
	m := message{kind: kind(b[1]), id: binary.BigEndian.Uint64(b[2:])}
	if m.kind < kindPing || m.kind > kindYes {
		return message{}, errMessage
	}
	b = b[messageHead:]
	for _, s := range []*string{&m.from, &m.target} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return message{}, errMessage
		}
		*s, b = string(b[1:1+int(b[0])]), b[1+int(b[0]):]
	}
	return m, nil
}
