package sidecar

import (
	"bytes"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParams reads what a command of any language may send over the socket. What is
// refused has a field, and what is accepted is within its limits.
func FuzzParams(f *testing.F) {
	f.Add("partition=3&token=34", "", "")
	f.Add("", "application/json", `{"partition":3,"token":"34","failed":"why"}`)
	f.Add("partition=3", "application/x-www-form-urlencoded", "token=34")
	f.Add("partition=3;token=1", "application/json", `{"partition":[3],"token":null}`)
	f.Fuzz(func(t *testing.T, query, kind, body string) {
		r := httptest.NewRequest("POST", "/v1/release", bytes.NewReader([]byte(body)))
		r.URL = &url.URL{Path: "/v1/release", RawQuery: query}
		r.Header.Set("Content-Type", kind)
		r.Body = httptest.NewRequest("POST", "/", strings.NewReader(body)).Body
		q, p := readParams(r, 64, paramPartition+needed, paramToken+needed, paramFailed)
		if p != nil {
			if p.Status < 400 || p.Status > 499 || p.Field == "" && p.Detail == "" {
				t.Fatalf("refused with %+v", p)
			}
			refuse(httptest.NewRecorder(), *p)
			return
		}
		if q.partition >= 64 || q.token == "" || len(q.failed) > maxReason || !utf8.ValidString(q.failed) {
			t.Fatalf("accepted %+v", q)
		}
	})
}
