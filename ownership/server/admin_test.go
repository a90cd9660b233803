package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A stranger's name that DNS has turned round to 127.0.0.1 makes the stranger's page
// one of the same origin: in it, a browser reads no profile.
func TestProfilesAreForThisMachineAlone(t *testing.T) {
	handler := newAdmin(slog.New(slog.DiscardHandler)).Handler
	for _, c := range []struct {
		host, agent, fetch string
		want               int
	}{
		{"127.0.0.1:7490", "Go-http-client/1.1", "", http.StatusOK},
		{"localhost:7490", "Mozilla/5.0", "none", http.StatusOK},
		{"evil.example:7490", "Mozilla/5.0", "same-origin", http.StatusForbidden},
		{"evil.example:7490", "Mozilla/5.0", "", http.StatusForbidden},
		{"evil.example:7490", "other", "same-origin", http.StatusForbidden},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.host+"/debug/pprof/cmdline", http.NoBody)
		r.Header.Set("User-Agent", c.agent)
		if c.fetch != "" {
			r.Header.Set("Sec-Fetch-Site", c.fetch)
		}
		got := httptest.NewRecorder()
		handler.ServeHTTP(got, r)
		if got.Code != c.want {
			t.Errorf("%+v: %d", c, got.Code)
		}
	}
}
