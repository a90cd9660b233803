package auth

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// FuzzPresented shows any Authorization to HTTP, at any path, and to gRPC, and logs in
// with any name and password as etcd's clients do. Nobody is somebody without the
// token of a credential, and no answer repeats what was shown.
func FuzzPresented(f *testing.F) {
	w := newWorld(f)
	token := w.credential("abc123abc123", "batch", access.Worker, time.Time{})
	id, secret, err := access.ParseToken(token)
	if err != nil {
		f.Fatal(err)
	}
	for _, v := range []string{
		token, "Bearer " + token, "bearer  " + token + " ", "Basic " + base64.StdEncoding.EncodeToString([]byte("batch:"+token)),
		"Basic " + base64.StdEncoding.EncodeToString([]byte("batch:")), "Digest a=b", "Bearer", "", access.Token(id, secret[1:]),
	} {
		f.Add(v, "")
		f.Add("", v)
		f.Add(v, "batch")
		f.Add(v, "v3/kv/range")
	}
	f.Add(token[len("lhc_abc123abc123_"):], "batch")
	handler := w.auth.HTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	f.Fuzz(func(t *testing.T, authorization, key string) {
		knows := strings.Contains(authorization, token) || strings.Contains(key, token)
		if !knows {
			// Basic has it encoded; its user knows it as well.
			r := http.Request{Header: http.Header{"Authorization": {authorization}}}
			_, password, _ := r.BasicAuth()
			knows = strings.Contains(password, token)
		}
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header["Authorization"] = []string{authorization}
		got := httptest.NewRecorder()
		handler.ServeHTTP(got, r)
		if got.Code < 400 {
			t.Fatalf("a worker's credential or none shows metrics: %d", got.Code)
		}
		if len(authorization) > 12 && strings.Contains(got.Body.String(), authorization) {
			t.Fatalf("the answer has what was shown: %s", got.Body)
		}
		r = httptest.NewRequest("POST", "/", nil)
		r.URL.Path = "/" + key
		r.Header["Authorization"] = []string{authorization}
		got = httptest.NewRecorder()
		if handler.ServeHTTP(got, r); !knows && got.Code < 400 && !nobodyAskedAt(r.URL.Path) {
			t.Fatalf("nobody is let through to %q", r.URL.Path)
		}
		given, err := w.auth.Login(t.Context(), key, authorization, "127.0.0.1:1")
		if err == nil && (given != token || !strings.Contains(authorization, token[len("lhc_abc123abc123_"):])) {
			t.Fatalf("%q logs in with %q", key, authorization)
		}
		if err != nil && len(authorization) > 12 && strings.Contains(err.Error(), authorization) {
			t.Fatalf("the answer to a login has what was shown: %v", err)
		}
		ctx := metadata.NewIncomingContext(context.Background(), metadata.MD{authorizationKey: {authorization}, tokenKey: {key}})
		who, err := w.auth.Identify(ctx)
		if !knows && (err == nil || who.Role != 0) {
			t.Fatalf("%q and %q are %v", authorization, key, who)
		}
		if err != nil && who.Role != 0 {
			t.Fatalf("refused, and is %v", who)
		}
	})
}
