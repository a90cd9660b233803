package state

import (
	"encoding/binary"
	"fmt"
)

// UnknownCommandError says that a log entry has a command which this version
// does not know and may not skip. The server has to stop: it could not reach
// the state that the others are in.
type UnknownCommandError struct {
	Number uint16
}

// Error asks for what helps.
func (e *UnknownCommandError) Error() string {
	return fmt.Sprintf("decode batch: unknown command %d: this server is too old for the log", e.Number)
}

// VersionError says that a batch or snapshot was written in a format that
// this version cannot read.
type VersionError struct {
	What     string // "batch" or "snapshot"
	Got, Max uint64
}

// Error names both versions.
func (e *VersionError) Error() string {
	return fmt.Sprintf("decode %s: format version %d, this server reads up to %d", e.What, e.Got, e.Max)
}

// skipped stands for a command that this version does not know and may
// ignore. It changes nothing; it keeps results and request ids in step.
type skipped struct {
	num  uint16
	body []byte
}

func (s *skipped) number() uint16 { return s.num }

func (s *skipped) code(c *coder) { c.buf = append(c.buf, s.body...) }

// DecodeBatch is the inverse of AppendBatch. Input is not trusted: it never
// panics and allocates no more than a small multiple of the input's length.
func DecodeBatch(src []byte) (*Batch, error) {
	if len(src) < 2 {
		return nil, fmt.Errorf("decode batch: %w: too short", errMalformed)
	}
	if src[0] != batchVersion {
		return nil, &VersionError{What: "batch", Got: uint64(src[0]), Max: batchVersion}
	}
	flags := src[1]
	if flags&^batchRequests != 0 {
		return nil, fmt.Errorf("decode batch: %w: unknown flags %#x", errMalformed, flags)
	}
	c := coder{buf: src[2:], reading: true}
	var wall int64
	c.varint(&wall)
	b := &Batch{Wall: fromMillis(wall)}
	n := c.length(0, 5)
	b.Commands = make([]Command, 0, n)
	if flags&batchRequests != 0 {
		b.Requests = make([]uint64, n)
	}
	for i := range n {
		if b.Requests != nil {
			b.Commands = append(b.Commands, c.command(&b.Requests[i]))
		} else {
			b.Commands = append(b.Commands, c.command(nil))
		}
		if c.err != nil {
			return nil, fmt.Errorf("decode batch: command %d: %w", i, c.err)
		}
	}
	if err := c.done(); err != nil {
		return nil, fmt.Errorf("decode batch: %w", err)
	}
	return b, nil
}

// command reads the next command of a batch.
func (c *coder) command(request *uint64) Command {
	var n uint16
	number(c, &n)
	if request != nil {
		fixed(c, request)
	}
	if len(c.buf) < 4 {
		c.fail("length is cut off")
		return nil
	}
	size := binary.LittleEndian.Uint32(c.buf)
	c.buf = c.buf[4:]
	if uint64(size) > uint64(len(c.buf)) {
		c.fail("command is cut off")
		return nil
	}
	body := c.buf[:size]
	c.buf = c.buf[size:]
	cmd := newCommand(n)
	if cmd == nil {
		if n&mayIgnore != 0 {
			return &skipped{num: n, body: append([]byte(nil), body...)}
		}
		c.err = &UnknownCommandError{Number: n}
		return nil
	}
	inner := coder{buf: body, reading: true}
	cmd.code(&inner)
	if c.err = inner.done(); c.err != nil {
		return nil
	}
	return cmd
}

// newCommand returns an empty command of that number, or nil.
func newCommand(n uint16) Command {
	switch n {
	case cmdBootstrap:
		return new(Bootstrap)
	case cmdAnnounce:
		return new(Announce)
	case cmdTick:
		return new(Tick)
	case cmdKeepAlive:
		return new(KeepAlive)
	case cmdExpire:
		return new(Expire)
	case cmdOpenSession:
		return new(OpenSession)
	case cmdJoinKeyspace:
		return new(JoinKeyspace)
	case cmdLeaveSession:
		return new(LeaveSession)
	case cmdCloseSession:
		return new(CloseSession)
	case cmdCreateKeyspace:
		return new(CreateKeyspace)
	case cmdUpdateKeyspace:
		return new(UpdateKeyspace)
	case cmdDeleteKeyspace:
		return new(DeleteKeyspace)
	case cmdGrant:
		return new(Grant)
	case cmdRelease:
		return new(Release)
	case cmdDrain:
		return new(Drain)
	case cmdRevoke:
		return new(Revoke)
	case cmdBarWorker:
		return new(BarWorker)
	case cmdEvict:
		return new(Evict)
	case cmdRetry:
		return new(Retry)
	case cmdRaiseToken:
		return new(RaiseToken)
	case cmdRaiseFeature:
		return new(RaiseFeature)
	case cmdTransact:
		return new(Transact)
	case cmdCompact:
		return new(Compact)
	case cmdGrantLease:
		return new(GrantLease)
	case cmdRevokeLease:
		return new(RevokeLease)
	case cmdEnqueue:
		return new(Enqueue)
	case cmdSequence:
		return new(Sequence)
	case cmdSetAlarm:
		return new(SetAlarm)
	case cmdOpenOwned:
		return &OpenSession{Owner: ownerFollows}
	case cmdGrantOwned:
		return &GrantLease{Owner: ownerFollows}
	case cmdPutCredential:
		return new(PutCredential)
	case cmdRevokeCred:
		return new(RevokeCredential)
	case cmdSetKeyring:
		return new(SetKeyring)
	}
	return nil
}
