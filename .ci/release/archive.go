package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// member is a file in an archive.
type member struct {
	name    string
	mode    int64
	content []byte
}

// pack makes an archive that tells nothing of when, where and by whom it was made:
// its time is that of the commit.
func pack(at time.Time, members []member) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: m.mode, Size: int64(len(m.content)), ModTime: at.UTC(), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(m.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// checksums is what sha256sum -c takes.
func checksums(files map[string][]byte) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return b.Bytes()
}

// readKey reads an ed25519 key as openssl genpkey writes it. Its errors have nothing
// of what is in the file.
func readKey(name string) (ed25519.PrivateKey, error) {
	if name == "" {
		return nil, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has mode %04o: others can read the key; want 0600", name, info.Mode().Perm())
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("%s has no PRIVATE KEY in PEM: make one with openssl genpkey -algorithm ed25519", name)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: not a key in PKCS #8", name)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s has a %T: want ed25519", name, parsed)
	}
	return key, nil
}

// sign makes the 64 bytes that openssl pkeyutl -verify -rawin takes.
func sign(key ed25519.PrivateKey, text []byte) []byte { return ed25519.Sign(key, text) }
