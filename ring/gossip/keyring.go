package gossip

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// MaxKeys is how many keys a member has at most. A change of keys takes two; the
// others are for who begins a second one before the first is over.
const MaxKeys = 4

// KeyLen is the length of a key to draw, for AES-256. Keys of 16 and 24 bytes do as
// well.
const KeyLen = 32

// Digest names a key without telling it: the beginning of its SHA-256.
type Digest [4]byte

// DigestOf returns the digest of a key.
func DigestOf(key []byte) Digest {
	sum := sha256.Sum256(key)
	return Digest(sum[:len(Digest{})])
}

// String returns eight hexadecimal digits.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// ParseDigest reads what String returns.
func ParseDigest(text string) (d Digest, err error) {
	if len(text) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("key digest %.64q: want 8 hexadecimal digits, for example 1f0c33d9", text)
	}
	if _, err := hex.Decode(d[:], []byte(text)); err != nil {
		return d, fmt.Errorf("key digest %.64q: want 8 hexadecimal digits, for example 1f0c33d9", text)
	}
	return d, nil
}

// CheckKey refuses a key that gossip cannot be encrypted with. No part of it is in
// the error.
func CheckKey(key []byte) error {
	switch len(key) {
	case 16, 24, 32:
		return nil
	}
	return fmt.Errorf("key of %d bytes: want 16, 24 or 32", len(key))
}

// CheckKeys refuses what cannot be the keys of a member. Keys of one digest cannot
// be told apart by people, so they are refused, too.
func CheckKeys(keys [][]byte) error {
	if len(keys) > MaxKeys {
		return fmt.Errorf("%d keys: want at most %d", len(keys), MaxKeys)
	}
	seen := make(map[Digest]bool, len(keys))
	for _, key := range keys {
		if err := CheckKey(key); err != nil {
			return err
		}
		d := DigestOf(key)
		if seen[d] {
			return fmt.Errorf("two keys of digest %s", d)
		}
		seen[d] = true
	}
	return nil
}

// Keyring is what a member tells of the keys that it has installed. The zero
// Keyring is that of a member without encryption, and of one of an older release.
type Keyring struct {
	// Version of the cluster's keyring that these are; 0 is none of them: a key that
	// the member was started with.
	Version uint64
	count   uint8
	digests [MaxKeys]Digest
}

// KeyringOf returns what a member with these keys tells of them. There are at most
// MaxKeys.
func KeyringOf(version uint64, keys [][]byte) Keyring {
	k := Keyring{Version: version, count: uint8(len(keys))}
	for i, key := range keys {
		k.digests[i] = DigestOf(key)
	}
	return k
}

// Digests returns those of all keys. The first encrypts.
func (k Keyring) Digests() []Digest { return slices.Clone(k.digests[:k.count]) }

// Has tells whether the key of that digest is installed.
func (k Keyring) Has(d Digest) bool { return slices.Contains(k.digests[:k.count], d) }

// Encrypts tells whether the key of that digest is what the member encrypts with.
func (k Keyring) Encrypts(d Digest) bool { return k.count > 0 && k.digests[0] == d }

// MarshalJSON shows the digests as people know them.
func (k Keyring) MarshalJSON() ([]byte, error) {
	digests := make([]string, k.count)
	for i, d := range k.digests[:k.count] {
		digests[i] = d.String()
	}
	return json.Marshal(map[string]any{"version": k.Version, "digests": digests})
}

// keyring owns the keys. memberlist's own, which its goroutines read, is changed by
// set alone.
type keyring struct {
	ring *memberlist.Keyring // nil: gossip is in the clear, for as long as it runs

	mu      sync.Mutex // of set
	version uint64
	keys    [][]byte
}

func newKeyring(version uint64, keys [][]byte) (*keyring, error) {
	k := &keyring{version: version, keys: cloneKeys(keys)}
	if len(keys) == 0 {
		return k, nil
	}
	ring, err := memberlist.NewKeyring(k.keys, k.keys[0])
	if err != nil {
		return nil, err
	}
	k.ring = ring
	return k, nil
}

func (k *keyring) encrypts() bool { return k.ring != nil }

// set makes memberlist's ring hold exactly these keys. At no time is it without a
// key that it had and shall keep, and what is sent is encrypted with the old first
// one or with the new.
func (k *keyring) set(version uint64, keys [][]byte) error {
	if err := CheckKeys(keys); err != nil {
		return err
	}
	switch {
	case k.ring == nil && len(keys) > 0:
		return errors.New("gossip is in the clear, and encryption cannot be switched on while it runs: start it again with a key")
	case k.ring != nil && len(keys) == 0:
		return errors.New("no key: gossip is encrypted, which cannot be switched off while it runs")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version, k.keys = version, cloneKeys(keys)
	if k.ring == nil {
		return nil
	}
	for _, key := range k.keys {
		if err := k.ring.AddKey(key); err != nil {
			return err
		}
	}
	if !bytes.Equal(k.ring.GetPrimaryKey(), k.keys[0]) {
		if err := k.ring.UseKey(k.keys[0]); err != nil {
			return err
		}
	}
	return k.removeOthers()
}

// removeOthers takes away what is not in keys. RemoveKey moves the keys behind the
// one that goes, in the very list that memberlist decrypts a packet with: only the
// last one may go. So those behind go as well and come back at once; in a change of
// one key for another there are none.
func (k *keyring) removeOthers() error {
	wanted := func(key []byte) bool {
		return slices.ContainsFunc(k.keys, func(w []byte) bool { return bytes.Equal(w, key) })
	}
	have := slices.Clone(k.ring.GetKeys())
	first := slices.IndexFunc(have, func(key []byte) bool { return !wanted(key) })
	if first < 0 {
		return nil
	}
	for _, key := range slices.Backward(have[first:]) {
		if err := k.ring.RemoveKey(key); err != nil {
			return err
		}
	}
	for _, key := range have[first:] {
		if wanted(key) {
			if err := k.ring.AddKey(key); err != nil {
				return err
			}
		}
	}
	return nil
}

// get returns copies.
func (k *keyring) get() (version uint64, keys [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.version, cloneKeys(k.keys)
}

func cloneKeys(keys [][]byte) [][]byte {
	out := make([][]byte, len(keys))
	for i, key := range keys {
		out[i] = bytes.Clone(key)
	}
	return out
}

// SetKeys replaces the keys while gossip goes on, and tells the others by their
// digests what is installed now. The first key encrypts; all of them decrypt. Keys
// are changed without a gap when all members have a key before one encrypts with
// it, and nobody encrypts with one any more before it is taken away. The same keys
// again change nothing. Encryption itself cannot be switched on or off.
func (g *Gossip) SetKeys(version uint64, keys [][]byte) error {
	if err := g.keys.set(version, keys); err != nil {
		return fmt.Errorf("set gossip keys: %w", err)
	}
	changed, err := g.changeMeta(func(m *Meta) { m.Keyring = KeyringOf(version, keys) })
	if err != nil {
		return fmt.Errorf("set gossip keys: %w", err)
	}
	if changed {
		signal(g.publish)
	}
	return nil
}

// Keys returns the keys that are installed, the first of which encrypts, and the
// version that SetKeys was given. None: gossip is in the clear.
func (g *Gossip) Keys() (version uint64, keys [][]byte) { return g.keys.get() }
