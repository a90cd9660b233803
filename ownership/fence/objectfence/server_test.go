package objectfence_test

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/objectfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store is a small object store over real HTTP. Its zero value behaves as S3
// does: the ETag is the MD5 of the content. Its fields make it worse.
type store struct {
	versioned         bool   // ETag of each write, as Azure's
	etag              string // "none", "weak", "bare": without quotes
	ignoreIfMatch     bool
	ignoreIfNoneMatch bool
	loseMetadata      bool

	mu      sync.Mutex // guards the rest
	objects map[string]*object
	applied map[string][]applied
	writes  int
	before  func(r *http.Request) // called before a request is looked at
	after   func(r *http.Request, status int) (lost bool)
}

type object struct {
	body []byte
	meta http.Header
	etag string
}

// applied is a PUT that changed an object.
type applied struct {
	token, owner string
	body         []byte
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	before, after := s.before, s.after
	s.mu.Unlock()
	if before != nil {
		before(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	rec := httptest.NewRecorder()
	s.handle(rec, r, body)
	if after != nil && after(r, rec.Code) {
		panic(http.ErrAbortHandler) // done, and the answer is lost
	}
	for k, v := range rec.Header() {
		w.Header()[k] = v
	}
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

func (s *store) handle(w http.ResponseWriter, r *http.Request, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[r.URL.Path]
	switch r.Method {
	case http.MethodDelete:
		delete(s.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet, http.MethodHead:
		if o == nil {
			http.NotFound(w, r)
			return
		}
		for k, v := range o.meta {
			w.Header()[k] = v
		}
		switch s.etag {
		case "none":
		case "weak":
			w.Header().Set("ETag", "W/"+o.etag)
		case "bare":
			w.Header().Set("ETag", strings.Trim(o.etag, `"`))
		default:
			w.Header().Set("ETag", o.etag)
		}
		if r.Method == http.MethodGet {
			_, _ = w.Write(o.body)
		}
	case http.MethodPut:
		if m := r.Header.Get("If-Match"); m != "" && !s.ignoreIfMatch {
			if o == nil {
				http.Error(w, "NoSuchKey", http.StatusNotFound)
				return
			}
			if strings.Trim(m, `"`) != strings.Trim(o.etag, `"`) {
				http.Error(w, "PreconditionFailed", http.StatusPreconditionFailed)
				return
			}
		}
		if r.Header.Get("If-None-Match") == "*" && o != nil && !s.ignoreIfNoneMatch {
			http.Error(w, "PreconditionFailed", http.StatusPreconditionFailed)
			return
		}
		s.put(r, body)
	}
}

func (s *store) put(r *http.Request, body []byte) {
	s.writes++
	o := &object{body: body, meta: http.Header{}, etag: fmt.Sprintf(`"%x"`, md5.Sum(body))}
	if s.versioned {
		o.etag = fmt.Sprintf(`"v%d"`, s.writes)
	}
	for k, v := range r.Header {
		if strings.HasPrefix(k, "X-Amz-Meta-") && !s.loseMetadata {
			o.meta[k] = v
		}
	}
	if s.objects == nil {
		s.objects = map[string]*object{}
	}
	if old := s.objects[r.URL.Path]; old == nil || !bytes.Equal(bare(old.body), bare(body)) {
		if s.applied == nil {
			s.applied = map[string][]applied{}
		}
		s.applied[r.URL.Path] = append(s.applied[r.URL.Path], applied{r.Header.Get("X-Amz-Meta-Leasehold-Token"), r.Header.Get("X-Amz-Meta-Leasehold-Owner"), bare(body)})
	}
	s.objects[r.URL.Path] = o
}

// bare is a content without its trailer.
func bare(body []byte) []byte {
	b, _, _ := bytes.Cut(body, []byte("\nleasehold-write "))
	return b
}

func (s *store) hook(before func(*http.Request), after func(*http.Request, int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before, s.after = before, after
}

func (s *store) listen(t testing.TB) (url string, client *http.Client) {
	t.Helper()
	srv := httptest.NewServer(s)
	base := &http.Transport{MaxIdleConnsPerHost: 16}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		srv.Close()
	})
	return srv.URL + "/bucket/", &http.Client{Transport: base}
}

func open(t testing.TB, s *store) *objectfence.Fence {
	t.Helper()
	url, client := s.listen(t)
	f, err := objectfence.Open(t.Context(), objectfence.Config{URL: url, Client: client, Trailer: !s.versioned})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func stamp(token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: 17, Token: token, Owner: owner}
}

var key = stamp(1, "x").Key()

const path = "/bucket/partition/orders/17"
