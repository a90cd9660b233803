package raftstore

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// identify returns the id stored in a data directory, which given must not
// contradict, and stores given in a new one. Two servers that share an id would
// vote twice.
func identify(dir, given string) (string, error) {
	path := filepath.Join(dir, "server-id")
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		stored := strings.TrimSuffix(string(b), "\n")
		if stored == "" {
			return "", &StorageError{Op: "read server id", Path: path, Err: ErrCorrupt}
		}
		if given != "" && given != stored {
			return "", &IdentityError{Dir: dir, Stored: stored, Given: given}
		}
		return stored, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read server id: %w", err)
	case given == "":
		return "", fmt.Errorf("server id: must not be empty for the new data directory %s", dir)
	}
	if err := writeSynced(path, given+"\n"); err != nil {
		return "", fmt.Errorf("store server id: %w", err)
	}
	return given, nil
}

// storeID returns the id of a data directory, and draws one for a new
// directory.
func storeID(dir string) (string, error) {
	path := filepath.Join(dir, "store-id")
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		stored := strings.TrimSuffix(string(b), "\n")
		if raw, err := hex.DecodeString(stored); err != nil || len(raw) != storeBytes {
			return "", &StorageError{Op: "read store id", Path: path, Err: ErrCorrupt}
		}
		return stored, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read store id: %w", err)
	}
	id := newStoreID()
	if err := writeSynced(path, id+"\n"); err != nil {
		return "", fmt.Errorf("store the id of the data directory: %w", err)
	}
	return id, nil
}

// storeBytes are what a store id is drawn from: twelve hex digits.
const storeBytes = 6

func newStoreID() string {
	var b [storeBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// writeSynced makes a file that is there whole or not at all.
func writeSynced(path, content string) error {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// StoredID returns the server id that a data directory belongs to, or "" for
// one that is new or empty.
func StoredID(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "server-id"))
	if dir == "" || err != nil {
		return "" // New says what is wrong with a directory that cannot be read
	}
	return strings.TrimSuffix(string(b), "\n")
}
