package raftstore

import (
	"bytes"
	"encoding/hex"
	"os"
	"strings"
	"testing"
)

// TestSamplesOfTheHelloAreUnderstood reads what version 1 said, for ever:
// releases meet in one cluster during an upgrade.
func TestSamplesOfTheHelloAreUnderstood(t *testing.T) {
	said := hello{cluster: "0123456789abcdef0123456789abcdef", from: "s1#0123456789ab", to: "s2#ba9876543210", feature: 1, version: "v0.1.0"}
	answered := welcome{code: helloNotMe, cluster: said.cluster, self: "s2#cccccccccccc", index: 1 << 40, text: "another data directory"}
	h, err := readHello(bytes.NewReader(helloSample(t, "hello.v1", said.encode())))
	if err != nil || h != said {
		t.Errorf("hello.v1 reads as %+v, %v", h, err)
	}
	w, err := readWelcome(bytes.NewReader(helloSample(t, "welcome.v1", answered.encode())))
	if err != nil || w != answered {
		t.Errorf("welcome.v1 reads as %+v, %v", w, err)
	}
}

// helloSample reads a sample, in hexadecimal digits. One that is not there is
// made with -update; one that is there is never written again.
func helloSample(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	file := "testdata/" + name
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		raw = []byte(hex.EncodeToString(now) + "\n")
		err = os.WriteFile(file, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
