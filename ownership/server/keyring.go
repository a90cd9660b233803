package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// The keys of gossip are in the state: they reach every server over Raft, also one
// that gossip does not let in any more because it was down while they changed. The
// key file is only the beginning.

// keyringRetry is how long a keyring that could not be written waits.
const keyringRetry = 5 * time.Second

// firstKeyring are the keys to start gossip with: those that were in use last, or
// else that of the configuration.
func (c *Config) firstKeyring(log *slog.Logger) (state.Keyring, error) {
	given := state.Keyring{}
	if len(c.GossipKey) > 0 {
		given.Keys = [][]byte{c.GossipKey}
	}
	path := c.keyringFile()
	if path == "" {
		return given, nil
	}
	if err := os.Remove(unfinishedKeyring(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return given, fmt.Errorf("take away keys of gossip that were written in part: %w", err)
	}
	kept, err := readKeyring(path)
	if err != nil || len(kept.Keys) == 0 {
		return given, err
	}
	if len(c.GossipKey) > 0 && !bytes.Equal(c.GossipKey, kept.Keys[0]) {
		log.Info("the keys of gossip have changed since --gossip-key-file was written: those in the data directory are used",
			"file", path, "keyring_version", kept.Version)
	}
	return kept, nil
}

// keyringFile is "" where nothing is kept.
func (c *Config) keyringFile() string {
	if c.DataDir == "" {
		return ""
	}
	return filepath.Join(c.DataDir, keyringName)
}

// secretsOf are the forms in which keys could turn up in a debug archive.
func secretsOf(k state.Keyring) (out []string) {
	for _, key := range k.Keys {
		out = append(out, string(key), base64.StdEncoding.EncodeToString(key))
	}
	return out
}

// keyring makes gossip use the keys of the state, and keeps them for the next
// start. Its run is the one goroutine that does either.
type keyring struct {
	store  *raftstore.Store
	gossip *gossip.Gossip
	log    *slog.Logger
	file   string        // "": nothing is kept
	kept   state.Keyring // what the file holds
	told   uint64        // the version that cannot be used, of which the log has heard
}

func (s *Server) keyring() *keyring {
	k := &keyring{store: s.store, gossip: s.gossip, log: s.log, file: s.cfg.keyringFile()}
	if s.firstKeys.Version != 0 {
		k.kept = s.firstKeys
	}
	return k
}

func (k *keyring) run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	defer k.store.Notify(changed)()
	retry := time.NewTicker(keyringRetry)
	defer retry.Stop()
	for {
		var now state.Keyring
		k.store.View(func(st *state.State) { now = st.Keyring() })
		if now.Version != 0 {
			// In this order: who says that it has a key still has it after a power cut.
			k.keep(now)
			k.install(now)
		}
		// Until the next change of the keyring nothing has to be tried again but
		// what has failed.
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry.C:
		}
	}
}

func (k *keyring) install(now state.Keyring) {
	version, keys := k.gossip.Keys()
	if version == now.Version && sameKeys(keys, now.Keys) {
		return
	}
	if err := k.gossip.SetKeys(now.Version, now.Keys); err != nil {
		if k.told != now.Version {
			k.told = now.Version
			k.log.Error("this server cannot take part in gossip: start it again, it knows the keys of the cluster now",
				"keyring_version", now.Version, "error", err)
		}
		return
	}
	k.log.Info("keys of gossip changed", "keyring_version", now.Version, "keys", digests(now.Keys))
}

func (k *keyring) keep(now state.Keyring) {
	if k.file == "" || k.kept.Version == now.Version && sameKeys(k.kept.Keys, now.Keys) {
		return
	}
	if err := writeKeyring(k.file, now); err != nil {
		k.log.Warn("the keys of gossip are not written down yet: trying again", "file", k.file, "error", err)
		return
	}
	k.kept = now
}

func sameKeys(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// digests are the names of keys that may be shown.
func digests(keys [][]byte) []string {
	out := make([]string, len(keys))
	for i, key := range keys {
		out[i] = gossip.DigestOf(key).String()
	}
	return out
}

// leadKeyring is a duty of the leader: when gossip is encrypted and the state has
// no keys yet, those that this server started with become the cluster's.
func (s *Server) leadKeyring(ctx context.Context, l *raftstore.Lead) error {
	_, keys := s.gossip.Keys()
	if len(keys) == 0 {
		return nil
	}
	changed := make(chan struct{}, 1)
	defer s.store.Notify(changed)()
	first := &state.SetKeyring{Keys: keys}
	for {
		set, permitted := false, false
		l.View(func(st *state.State) { set, permitted = st.Keyring().Version != 0, st.Permits(first) == nil })
		if set {
			return nil
		}
		if permitted {
			results, err := l.Propose(ctx, first)
			if err == nil {
				err = results[0].Err
			}
			if err != nil && state.ReasonOf(err) != state.ReasonConflict {
				return fmt.Errorf("write the keys of gossip to the log: %w", err)
			}
			continue
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		}
	}
}
