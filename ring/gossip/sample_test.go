package gossip

import (
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write samples that are not there yet")

// TestSamplesOfTheWire reads what version 1 said, for ever: releases meet in
// one cluster during an upgrade. A new field gets a sample beside these.
func TestSamplesOfTheWire(t *testing.T) {
	meta, err := encodeMeta("leasehold", fullMeta)
	if err != nil {
		t.Fatal(err)
	}
	probe := message{kind: kindAsk, id: 1<<63 + 7, from: "s/s1", target: "w/w1"}
	old := fullMeta
	old.Keyring = Keyring{}
	for name, want := range map[string]Meta{"meta.v1": old, "meta.v1.keyring": fullMeta} {
		if got, err := decodeMeta("leasehold", sample(t, name, meta)); err != nil || got != want {
			t.Errorf("%s reads as %+v, %v", name, got, err)
		}
	}
	asked, err := decodeMessage(sample(t, "message.v1", probe.encode()))
	if err != nil || asked != probe {
		t.Errorf("message.v1 reads as %+v, %v", asked, err)
	}
}

// sample reads a sample, in hexadecimal digits. One that is not there is made
// with -update; one that is there is never written again.
func sample(t *testing.T, name string, now []byte) []byte {
	t.Helper()
	file := "testdata/" + name
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) && *update {
		raw = []byte(hex.EncodeToString(now) + "\n")
		if err = os.MkdirAll("testdata", 0o755); err == nil {
			err = os.WriteFile(file, raw, 0o644)
		}
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
