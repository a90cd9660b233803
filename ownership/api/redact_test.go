package api

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

func TestSecretsAreRedactedInEveryForm(t *testing.T) {
	key := string([]byte{1, 2, 3, 0xfe, 0xff, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
	r := newRedactor([]string{key, "correct horse", "short"})
	for name, c := range map[string]struct{ text, gone, kept string }{
		"key in base64":             {"key " + base64.StdEncoding.EncodeToString([]byte(key)) + " read", base64.StdEncoding.EncodeToString([]byte(key)), "read"},
		"key in base64, no padding": {base64.RawStdEncoding.EncodeToString([]byte(key)), base64.RawStdEncoding.EncodeToString([]byte(key)), ""},
		"key in hex":                {hex.EncodeToString([]byte(key)), hex.EncodeToString([]byte(key)), ""},
		"key as it is":              {"x" + key + "y", key, "x"},
		"known text":                {`{"a":"correct horse"}`, "correct horse", `{"a":"`},
		"JSON pair":                 {`{"db_password": "hunter2 \" and more", "next": 1}`, "hunter2", `"next": 1`},
		"JSON number":               {`{"password":12345,"n":2}`, "12345", `"n":2`},
		"logfmt pair":               {`level=info client_secret=abc123 port=5`, "abc123", "port=5"},
		"header":                    {`Authorization: Bearer abc.def-ghi==`, "abc.def-ghi", "Authorization"},
		"URL":                       {`endpoint=postgres://app:pa55@db:5432/x`, "pa55", "@db:5432/x"},
	} {
		got, n := r.clean([]byte(c.text))
		if strings.Contains(string(got), c.gone) || !strings.Contains(string(got), c.kept) || !strings.Contains(string(got), redacted) || n == 0 {
			t.Errorf("%s: %q became %q, %d replaced", name, c.text, got, n)
		}
	}
	for _, text := range []string{
		`{"token":"49387577294860","last_token":"7"}`, // the fencing token is what an archive is for
		`{"gossip_key":"32 bytes, not shown","gossip_key_file":"/etc/leasehold/key"}`,
		"http://10.0.0.1:7480/metrics",
		"a short text",
	} {
		if got, n := r.clean([]byte(text)); string(got) != text || n != 0 {
			t.Errorf("%q became %q", text, got)
		}
	}
	stack := "google.golang.org/grpc/credentials.go:120 +0x1"
	if got, _ := r.cleanKnown([]byte(stack)); string(got) != stack {
		t.Errorf("%q became %q", stack, got)
	}
}
