package server

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

// keyringName is the file in the data directory with the newest keys of gossip
// that this server knows: a server that comes back must be let in by the others
// before the log can tell it of newer ones.
const keyringName = "gossip-keyring"

// The file is text: a comment, the version, then one key in base64 a line, the one
// that encrypts first.
const (
	keyringHeader   = "# the keys of leasehold's gossip, written by the server: keep them secret\n"
	versionWord     = "version "
	maxKeyringBytes = 4 << 10
)

func encodeKeyring(k state.Keyring) []byte {
	b := []byte(keyringHeader + versionWord + strconv.FormatUint(k.Version, 10) + "\n")
	for _, key := range k.Keys {
		b = append(b, base64.StdEncoding.EncodeToString(key)+"\n"...)
	}
	return b
}

// decodeKeyring reads what encodeKeyring wrote. Errors name lines and never what
// is in them.
func decodeKeyring(b []byte) (k state.Keyring, err error) {
	versioned := false
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case !versioned:
			text, ok := strings.CutPrefix(line, versionWord)
			if k.Version, err = strconv.ParseUint(text, 10, 64); !ok || err != nil {
				return k, fmt.Errorf("line %d: want %q and a number", n, strings.TrimSpace(versionWord))
			}
			versioned = true
		default:
			key, err := base64.StdEncoding.Strict().DecodeString(line)
			if err != nil {
				return k, fmt.Errorf("line %d: not base64", n)
			}
			if err := gossip.CheckKey(key); err != nil {
				return k, fmt.Errorf("line %d: %w", n, err)
			}
			k.Keys = append(k.Keys, key)
		}
	}
	switch {
	case lines.Err() != nil:
		return k, errors.New("a line is too long")
	case len(k.Keys) == 0:
		return k, errors.New("no key is in it")
	}
	return k, gossip.CheckKeys(k.Keys)
}

// readKeyring returns the zero Keyring if there is no file.
func readKeyring(path string) (k state.Keyring, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err == nil && info.Size() > maxKeyringBytes {
		err = fmt.Errorf("%d bytes, at most %d are expected", info.Size(), maxKeyringBytes)
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err == nil {
		k, err = decodeKeyring(b)
	}
	if err != nil {
		return state.Keyring{}, fmt.Errorf("read the keys of gossip from %s: %w; remove the file to start with --gossip-key-file", path, err)
	}
	return k, nil
}

// unfinishedKeyring is what writeKeyring leaves when the power is cut: the next one
// begins anew, and a start takes it away.
func unfinishedKeyring(path string) string { return path + ".new" }

// writeKeyring replaces the file in one step, and returns when that will survive a
// power cut.
func writeKeyring(path string, k state.Keyring) (err error) {
	dir := filepath.Dir(path)
	tmp, err := os.OpenFile(unfinishedKeyring(path), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(encodeKeyring(k))
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
