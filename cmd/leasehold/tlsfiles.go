package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/leasehold-dev/leasehold/ownership/pki"
)

// absent refuses to go on where a file is in the way.
func absent(names ...string) error {
	for _, name := range names {
		if _, err := os.Lstat(name); err == nil {
			return &codedError{exitRefused, fmt.Errorf("%s exists and is not overwritten", name)}
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// createPair writes a certificate and its key under names that must be free. It
// leaves nothing behind if it fails.
func createPair(cert, key string, pair pki.Pair) error {
	if err := createFile(key, pair.Key, keyMode); err != nil {
		return err
	}
	if err := createFile(cert, pair.Cert, certMode); err != nil {
		return errors.Join(err, os.Remove(key))
	}
	return syncParent(cert)
}

// replacePair puts a certificate and its key in the place of others. Who reads them
// in between finds two that do not fit, and looks again.
func replacePair(cert, key string, pair pki.Pair) error {
	if err := replaceFile(key, pair.Key, keyMode); err != nil {
		return err
	}
	return replaceFile(cert, pair.Cert, certMode)
}

func createFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// replaceFile gives a file new contents in one step.
func replaceFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncParent(name)
}
