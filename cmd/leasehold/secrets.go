package main

import (
	"encoding/base64"
	"os"
	"regexp"
	"slices"
)

// secretless are the texts that only a secret looks like: private keys in PEM,
// credentials, keys of 16 or 32 bytes in base64, passwords in addresses. Keys of 24
// bytes look like much else.
var secretless = []struct {
	looks *regexp.Regexp
	to    string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z0-9 ]*-----|$)`), "[private key]"},
	{regexp.MustCompile(`(lhc_[a-z0-9]{1,12}_)[A-Za-z0-9_-]{8,}`), "${1}[secret]"},
	{regexp.MustCompile(`(^|[^A-Za-z0-9+])([A-Za-z0-9+/]{43}=|[A-Za-z0-9+/]{22}==)($|[^A-Za-z0-9+=])`), "${1}[key]${3}"},
	{regexp.MustCompile(`([^\s"/@:]+:)[^\s"/@]+@`), "${1}[password]@"},
}

// withoutSecrets is a text as it may be shown: what somebody has typed in a wrong
// place comes along in errors and settings, and logs are read by others.
func withoutSecrets(text string) string {
	for _, s := range secretless {
		text = s.looks.ReplaceAllString(text, s.to)
	}
	return text
}

// isKey tells a gossip key that was given in place of its file's name.
func isKey(path string) bool {
	key, err := base64.StdEncoding.DecodeString(path)
	if err != nil || !slices.Contains([]int{16, 24, 32}, len(key)) {
		return false
	}
	_, err = os.Stat(path)
	return err != nil
}
