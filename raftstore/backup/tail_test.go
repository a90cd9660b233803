package backup

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"testing"
)

// What etcd's clients save has zeros and a sum behind it, and nothing else may
// follow.
func TestFileOfEtcdsClients(t *testing.T) {
	plain := fileOf(t, example(t, 100))
	filled := append(bytes.Clone(plain), make([]byte, Filled(int64(len(plain)))-int64(len(plain)))...)
	sum := sha256.Sum256(filled)
	saved := append(bytes.Clone(filled), sum[:]...)
	if _, _, err := Load(bytes.NewReader(saved)); err != nil {
		t.Fatal(err)
	}
	for i := len(plain); i < len(saved); i++ {
		damaged := bytes.Clone(saved)
		damaged[i] ^= 1
		var want *DamagedError
		if _, err := Check(bytes.NewReader(damaged)); !errors.As(err, &want) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if i > len(plain) {
			if _, err := Check(bytes.NewReader(saved[:i])); !errors.As(err, &want) {
				t.Fatalf("cut off at %d: %v", i, err)
			}
		}
	}
	var want *DamagedError
	if _, err := Check(bytes.NewReader(append(saved, 0))); !errors.As(err, &want) {
		t.Fatalf("a byte more: %v", err)
	}
}
