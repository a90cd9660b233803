package console

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// budget is what all files of the console weigh at most, as they are sent.
const budget = 150 << 10

func get(h http.Handler, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/", http.NoBody)
	r.URL.Path = path // as it is: no cleaning on the way
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	out := httptest.NewRecorder()
	h.ServeHTTP(out, r)
	return out
}

func TestFilesWithinBudget(t *testing.T) {
	c := newWorld(t).console(t)
	sum := 0
	for path, f := range c.files {
		if path != Prefix { // it is the index once more
			sum += len(f.content)
		}
	}
	t.Logf("%d files weigh %d bytes of %d", len(c.files)-1, sum, budget)
	if sum > budget {
		t.Errorf("the files weigh %d bytes, at most %d", sum, budget)
	}
}

// Nothing is loaded from elsewhere, and nothing stands inline that the policy would
// refuse.
func TestFilesStandAlone(t *testing.T) {
	external := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9-]+\.[a-z]`)
	inline := regexp.MustCompile(`(?i)<script(?:[^>]*)>[^<]|<style|\sstyle\s*=|\son[a-z]+\s*=\s*["']|javascript:`)
	for path, f := range newWorld(t).console(t).files {
		text := strings.ReplaceAll(string(f.content), "http://www.w3.org/", "") // names of namespaces
		if found := external.FindString(text); found != "" {
			t.Errorf("%s refers to %s", path, found)
		}
		if strings.HasPrefix(f.kind, "text/html") {
			if found := inline.FindString(text); found != "" {
				t.Errorf("%s has %q inline", path, found)
			}
		}
		if strings.HasPrefix(f.kind, "text/javascript") && regexp.MustCompile(`\beval\(|new Function\(|innerHTML|insertAdjacentHTML|document\.write`).MatchString(text) {
			t.Errorf("%s makes code or markup of text", path)
		}
	}
}

func TestHeadersOfFiles(t *testing.T) {
	h := newWorld(t).console(t).Handler()
	for _, path := range []string{"/ui/", "/ui/app.js", "/ui/app.css", "/ui/views/overview.js", "/ui/nothing", "/ui/feed"} {
		out := get(h, "HEAD", path)
		for k, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff",
			"Referrer-Policy":         "no-referrer",
		} {
			if got := out.Header().Get(k); got != want {
				t.Errorf("%s: %s is %q", path, k, got)
			}
		}
		if out.Code == 200 && out.Body.Len() > 0 {
			t.Errorf("HEAD %s has %d bytes", path, out.Body.Len())
		}
	}
	first := get(h, "GET", "/ui/app.js")
	if first.Code != 200 || first.Header().Get("Content-Type") != "text/javascript; charset=utf-8" || first.Header().Get("ETag") == "" || first.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("%d %v", first.Code, first.Header())
	}
	if again := get(h, "GET", "/ui/app.js", "If-None-Match", first.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("the same file once more: %d", again.Code)
	}
}

// What is no file is not found, lists nothing and leads nowhere else.
func TestNoOtherFiles(t *testing.T) {
	h := newWorld(t).console(t).Handler()
	for _, path := range []string{"/ui/nothing.js", "/ui/views/", "/ui/views", "/ui/assets/app.js", "/ui//app.js", "/ui/../console.go", "/ui/../../go.mod", "/ui/./app.js", `/ui/..\console.go`, "/ui/%2e%2e/console.go", "/ui/app.js\x00.css"} {
		out := get(h, "GET", path)
		if out.Code == 200 || strings.Contains(out.Body.String(), "package console") || strings.Contains(out.Body.String(), "overview.js") {
			t.Errorf("%q: %d %.60s", path, out.Code, out.Body)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if out := get(h, method, "/ui/app.js"); out.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, out.Code)
		}
	}
	if out := get(h, "GET", "/ui/feed", "Sec-Fetch-Site", "cross-site"); out.Code != http.StatusForbidden {
		t.Errorf("the feed for another site: %d", out.Code)
	}
}
