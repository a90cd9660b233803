package console

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// policy lets the page load what this server serves under its own name, and
// nothing else. There is no inline script and no inline style.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// headers are on every answer under Prefix, errors too.
func headers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// file is one embedded file, ready to be served.
type file struct {
	content []byte
	kind    string
	tag     string
}

// kinds are the only files there may be. The system's own table of types is not
// asked: it differs from one machine to the next.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".svg":  "image/svg+xml",
	".png":  "image/png",
}

// load reads all files of the console, by the path they are asked for.
func load(from fs.FS) (map[string]*file, error) {
	files := map[string]*file{}
	err := fs.WalkDir(from, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			return fmt.Errorf("%s: want one of .html, .js, .css, .svg, .png", name)
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		files[Prefix+strings.TrimPrefix(name, "assets/")] = &file{content, kind, `"` + hex.EncodeToString(sum[:12]) + `"`}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load console: %w", err)
	}
	files[Prefix] = files[Prefix+"index.html"]
	if files[Prefix] == nil {
		return nil, fmt.Errorf("load console: there is no index.html")
	}
	return files, nil
}

// asset serves one file. A browser asks each time whether it is still the same: a
// server that was upgraded must not meet the old half of a page.
func (c *Console) asset(w http.ResponseWriter, r *http.Request) {
	f, ok := c.files[r.URL.Path]
	if !ok {
		http.Error(w, "404: the console has no such file; it begins at "+Prefix, http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.content))
}
