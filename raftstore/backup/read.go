package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Reader reads a backup from front to back. As an io.Reader it gives the
// snapshot, each block after its sum has been checked, and io.EOF only when the
// whole file has been found good and nothing follows it.
type Reader struct {
	// Manifest has been read, and its sum checked, by NewReader.
	Manifest Manifest

	r        io.Reader
	sum      hash.Hash
	at       int64 // bytes read
	snapshot uint64
	buf      []byte // a block
	rest     []byte // of it, not handed out yet
	err      error
}

// NewReader reads the manifest.
func NewReader(r io.Reader) (*Reader, error) {
	b := &Reader{r: r, sum: sha256.New()}
	if err := b.head(); err != nil {
		return nil, fmt.Errorf("read backup: %w", err)
	}
	return b, nil
}

// Offset is how many bytes of the file have been read.
func (b *Reader) Offset() int64 { return b.at }

func (b *Reader) head() error {
	head := make([]byte, headSize)
	if err := b.fill(head, "the beginning"); err != nil {
		return err
	}
	if string(head[:len(magic)]) != magic {
		return &DamagedError{0, "it does not begin like a backup"}
	}
	if v := int(head[len(magic)]); v != formatVersion {
		return &VersionError{Got: v, Max: formatVersion}
	}
	at := b.at
	text, err := b.part("the manifest", maxManifest)
	if err != nil {
		return err
	}
	if text == nil {
		return &DamagedError{at, "the manifest is empty"}
	}
	if err := json.Unmarshal(text, &b.Manifest); err != nil {
		return &DamagedError{at, fmt.Sprintf("the manifest cannot be read: %v", err)}
	}
	if b.Manifest.Format != formatVersion {
		return &DamagedError{at, fmt.Sprintf("the manifest says format %d", b.Manifest.Format)}
	}
	return nil
}

// fill reads all of p, which is a part of what. The sum does not get it: see
// part.
func (b *Reader) fill(p []byte, what string) error {
	at := b.at
	n, err := io.ReadFull(b.r, p)
	b.at += int64(n)
	switch {
	case err == nil:
		b.sum.Write(p) // never fails
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &DamagedError{at + int64(n), "it is cut off within " + what}
	}
	return err
}

// part reads a length, a sum and what they say. It is nil for the length 0,
// which has no sum.
func (b *Reader) part(what string, most uint32) ([]byte, error) {
	at := b.at
	var head [partHead]byte
	if err := b.fill(head[:4], what); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:4])
	if n == 0 {
		return nil, nil
	}
	if n > most {
		return nil, &DamagedError{at, fmt.Sprintf("%s has a length of %d, at most %d", what, n, most)}
	}
	if err := b.fill(head[4:], what); err != nil {
		return nil, err
	}
	if uint32(cap(b.buf)) < n {
		b.buf = make([]byte, n)
	}
	payload := b.buf[:n]
	if err := b.fill(payload, what); err != nil {
		return nil, err
	}
	if partSum(head[:4], payload) != binary.LittleEndian.Uint32(head[4:]) {
		return nil, &DamagedError{at, fmt.Sprintf("the checksum of %s differs (%d bytes from there)", what, partHead+n)}
	}
	return payload, nil
}

// Read gives the snapshot.
func (b *Reader) Read(p []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil {
		b.rest, b.err = b.part("a block", maxBlock)
		b.snapshot += uint64(len(b.rest))
		if b.err == nil && len(b.rest) == 0 {
			b.err = b.trailer()
		}
		if b.err != nil && !errors.Is(b.err, io.EOF) {
			b.err = fmt.Errorf("read backup: %w", b.err)
		}
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// trailer checks the end of the file; io.EOF: all is well.
func (b *Reader) trailer() error {
	at := b.at
	var size [8]byte
	if err := b.fill(size[:], "the trailer"); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(size[:]); n != b.snapshot {
		return &DamagedError{at, fmt.Sprintf("the trailer says that the snapshot has %d bytes, it has %d", n, b.snapshot)}
	}
	want := b.sum.Sum(nil)
	at = b.at
	got := make([]byte, sha256.Size)
	if err := b.fill(got, "the trailer"); err != nil {
		return err
	}
	if string(got) != string(want) {
		return &DamagedError{at, "the sum over the whole file differs"}
	}
	return b.tail()
}

// Check reads a backup to its end and checks every sum. It does not look into
// the snapshot: see Load.
func Check(r io.Reader) (Manifest, error) {
	b, err := NewReader(r)
	if err != nil {
		return Manifest{}, err
	}
	_, err = io.Copy(io.Discard, b)
	return b.Manifest, err
}

// Load reads a backup, checks every sum, decodes the state, which checks every
// invariant, and compares it with the manifest.
func Load(r io.Reader) (*state.State, Manifest, error) {
	b, err := NewReader(r)
	if err != nil {
		return nil, Manifest{}, err
	}
	s, err := state.Restore(b)
	if err != nil {
		if errors.Is(b.err, ErrDamaged) {
			err = b.err // the cause; the state only saw that no more came
		}
		return nil, b.Manifest, fmt.Errorf("load backup: block before byte %d: %w", b.at, err)
	}
	if n, err := io.Copy(io.Discard, b); err != nil {
		return nil, b.Manifest, err
	} else if n > 0 {
		return nil, b.Manifest, fmt.Errorf("load backup: %w", &DamagedError{b.at, fmt.Sprintf("%d bytes follow the snapshot", n)})
	}
	if err := b.Manifest.agree(s); err != nil {
		return nil, b.Manifest, fmt.Errorf("load backup: %w", &DamagedError{int64(headSize), err.Error()})
	}
	return s, b.Manifest, nil
}
