package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A module that comes in, or changes its licence, changes the list: somebody has to
// look at it.
func TestThirdPartyIsUpToDate(t *testing.T) {
	r := release{root: "../..", targets: strings.Split(defaultTargets, ",")}
	got, err := r.thirdParty()
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("../../THIRD_PARTY.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("THIRD_PARTY.md is out of date: look at what make third-party changes. It would write\n%s", got)
	}
}

func TestClassify(t *testing.T) {
	for text, want := range map[string][]string{
		"Apache License\n      Version 2.0,\tJanuary 2004":                          {"Apache-2.0"},
		"covered by MIT and Apache: Licensed under the Apache License, Version 2.0": {"Apache-2.0"},
		"Mozilla Public License, version 2.0":                                       {"MPL-2.0"},
		"Redistributions in binary form must reproduce the above copyright notice, … to endorse or\npromote products derived from this software": {"BSD-3-Clause"},
		"GNU GENERAL PUBLIC LICENSE": nil,
	} {
		if got := classify(text); !slices.Equal(got, want) {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

func TestPackTellsNothingOfTheMachine(t *testing.T) {
	members := []member{{"a/leasehold", 0o755, []byte("binary")}, {"a/LICENSE", 0o644, []byte("text")}}
	at := time.Unix(1_800_000_000, 0)
	one, err := pack(at, members)
	if err != nil {
		t.Fatal(err)
	}
	two, err := pack(at.In(time.FixedZone("", 20700)), members)
	if err != nil || !bytes.Equal(one, two) {
		t.Error("two archives of the same differ", err)
	}
}

func TestSame(t *testing.T) {
	a := product{[]byte("binary"), []byte("sbom")}
	if err := a.same(&product{[]byte("binary"), []byte("sbom")}); err != nil {
		t.Error(err)
	}
	for _, b := range []product{{[]byte("binarY"), a.sbom}, {a.binary, []byte("sbom ")}, {nil, a.sbom}} {
		if a.same(&b) == nil {
			t.Errorf("%q passes for the same", b)
		}
	}
}

// Two machines build the tool that makes the SBOM, each its own.
func TestSBOMSaysNothingOfTheBuildOfItsTool(t *testing.T) {
	const sbom = `{
  "metadata": {
    "tools": [
      {
        "name": "cyclonedx-gomod",
        "version": "v1.10.0",
        "hashes": [
          {
            "alg": "MD5",
            "content": "%s"
          }
        ],
        "externalReferences": []
      }
    ]
  },
  "components": [{"name": "a", "version": "v1", "hashes": [{"alg": "SHA-256", "content": "00"}]}]
}`
	var made [2][]byte
	for i, hash := range []string{"8bdcc15e", "eb469c13"} {
		var err error
		if made[i], err = withoutToolHashes(fmt.Appendf(nil, sbom, hash)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(made[0], made[1]) || !json.Valid(made[0]) || !bytes.Contains(made[0], []byte("SHA-256")) || !bytes.Contains(made[0], []byte("v1.10.0")) {
		t.Errorf("%s\n\n%s", made[0], made[1])
	}
	if _, err := withoutToolHashes([]byte("{}")); err == nil {
		t.Error("an SBOM of another form is taken")
	}
}

func TestKey(t *testing.T) {
	dir := t.TempDir()
	write := func(name, kind string, der []byte, mode os.FileMode) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
			t.Fatal(err)
		}
		return name
	}
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	otherDER, err := x509.MarshalPKCS8PrivateKey(other)
	if err != nil {
		t.Fatal(err)
	}
	good := write("good", "PRIVATE KEY", der, 0o600)
	got, err := readKey(good)
	if err != nil || !got.Equal(key) {
		t.Fatal(err)
	}
	for name, file := range map[string]string{
		"others can read it": write("open", "PRIVATE KEY", der, 0o644),
		"an RSA key":         write("rsa", "PRIVATE KEY", otherDER, 0o600),
		"another block":      write("cert", "CERTIFICATE", der, 0o600),
		"cut off":            write("cut", "PRIVATE KEY", der[:20], 0o600),
	} {
		if _, err := readKey(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", name, err)
		}
	}

	sums := checksums(map[string][]byte{"b": []byte("2"), "a": []byte("1")})
	sig := sign(got, sums)
	if !ed25519.Verify(pub, sums, sig) {
		t.Error("the signature is not one")
	}
	// As SECURITY.md says that users check it.
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: its check is left out")
	}
	pubDER, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	pubFile := write("pub", "PUBLIC KEY", pubDER, 0o644)
	for name, text := range map[string][]byte{"SHA256SUMS": sums, "SHA256SUMS.sig": sig} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := run(dir, nil, "openssl", "pkeyutl", "-verify", "-pubin", "-inkey", pubFile, "-rawin", "-in", "SHA256SUMS", "-sigfile", "SHA256SUMS.sig"); err != nil {
		t.Errorf("openssl refuses it: %v\n%s", err, out)
	}
}
