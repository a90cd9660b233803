package objectfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/objectfence"
)

func both(t *testing.T, test func(t *testing.T, s *store)) {
	t.Run("ETag of the content", func(t *testing.T) { test(t, &store{}) })
	t.Run("ETag of the version", func(t *testing.T) { test(t, &store{versioned: true}) })
	t.Run("ETag without quotes", func(t *testing.T) { test(t, &store{etag: "bare"}) })
}

func content(t *testing.T, f *objectfence.Fence, want string, mark fence.Mark) {
	t.Helper()
	got, m, err := f.Get(t.Context(), key)
	if err != nil || string(got) != want || m != mark {
		t.Errorf("content %q under %+v, %v; want %q under %+v", got, m, err, want, mark)
	}
}

func TestZombieBounces(t *testing.T) {
	both(t, func(t *testing.T, s *store) {
		f := open(t, s)
		ctx := t.Context()
		if _, _, err := f.Get(ctx, key); !errors.Is(err, objectfence.ErrNotFound) {
			t.Errorf("before anything: %v", err)
		}
		if err := f.Claim(ctx, []fence.Stamp{stamp(33, "w2")}); err != nil {
			t.Fatal(err)
		}
		if _, m, err := f.Get(ctx, key); !errors.Is(err, objectfence.ErrNotFound) || m.Token != 33 {
			t.Errorf("claimed and not written: %+v, %v", m, err)
		}
		for range 2 {
			if err := f.Put(ctx, stamp(33, "w2"), []byte("by 33")); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Claim(ctx, []fence.Stamp{stamp(34, "wörker, 4")}); err != nil {
			t.Fatal(err)
		}
		content(t, f, "by 33", fence.Mark{Token: 34, Owner: "wörker, 4"}) // a claim keeps the content
		var stale *fence.StaleError
		err := f.Put(ctx, stamp(33, "w2"), []byte("zombie"))
		if !errors.As(err, &stale) || stale.Current != 34 || stale.CurrentOwner != "wörker, 4" {
			t.Errorf("zombie: got %v", err)
		}
		if err := f.Put(ctx, stamp(34, "liar"), []byte("liar")); !errors.Is(err, fence.ErrOtherOwner) { // O-73
			t.Errorf("liar: got %v", err)
		}
		content(t, f, "by 33", fence.Mark{Token: 34, Owner: "wörker, 4"})
		if err := f.Put(ctx, stamp(34, "wörker, 4"), []byte("by 34")); err != nil {
			t.Error(err)
		}
		content(t, f, "by 34", fence.Mark{Token: 34, Owner: "wörker, 4"})
	})
}

// The old owner has compared and is about to put when the new one claims,
// without changing the content: the ETag must have changed all the same.
func TestClaimBetweenCompareAndWrite(t *testing.T) {
	both(t, func(t *testing.T, s *store) {
		f := open(t, s)
		if err := f.Put(t.Context(), stamp(33, "w2"), []byte("same")); err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		s.hook(func(r *http.Request) {
			if r.Method == http.MethodPut && r.Header.Get("X-Amz-Meta-Leasehold-Token") == "33" {
				once.Do(func() {
					if err := f.Claim(context.Background(), []fence.Stamp{stamp(34, "w4")}); err != nil {
						t.Error(err)
					}
				})
			}
		}, nil)
		if err := f.Put(t.Context(), stamp(33, "w2"), []byte("late")); !errors.Is(err, fence.ErrStale) {
			t.Errorf("got %v, want ErrStale", err)
		}
		content(t, f, "same", fence.Mark{Token: 34, Owner: "w4"})
	})
}

func TestLostAnswers(t *testing.T) {
	s := &store{}
	f := open(t, s)
	ctx := t.Context()
	losing := func(n int) func(*http.Request, int) bool {
		return func(r *http.Request, _ int) bool {
			n--
			return r.Method == http.MethodPut && n >= 0
		}
	}
	s.hook(nil, losing(4)) // the client library asks again by itself too
	count := s.writes
	if err := f.Put(ctx, stamp(5, "a"), []byte("one")); err != nil {
		t.Errorf("answer lost: %v, want the write to be recognised", err)
	}
	if n := s.writes - count; n != 1 {
		t.Errorf("applied %d times, want once", n)
	}
	content(t, f, "one", fence.Mark{Token: 5, Owner: "a"})

	// applied, the answer lost, and written over by a newer owner before we
	// look again: nobody can tell us any more, so neither nil nor stale
	overwritten := false
	s.hook(nil, func(r *http.Request, _ int) bool {
		if r.Method != http.MethodPut || r.Header.Get("X-Amz-Meta-Leasehold-Token") != "5" || overwritten {
			return false
		}
		overwritten = true
		if err := f.Put(context.Background(), stamp(6, "b"), []byte("newer")); err != nil {
			t.Error(err)
		}
		return true
	})
	if err := f.Put(ctx, stamp(5, "a"), []byte("two")); !errors.Is(err, objectfence.ErrUnknown) && !errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v", err)
	} else if errors.Is(err, fence.ErrStale) {
		t.Errorf("got %v, though the write was made: want ErrUnknown", err)
	}
	content(t, f, "newer", fence.Mark{Token: 6, Owner: "b"})
}

// gateway answers a PUT with an error of its own, before or after it has
// reached the store.
type gateway struct {
	http.RoundTripper
	mu     sync.Mutex
	status []int // what to answer the next PUTs with; 0 passes
	reach  bool  // the store gets it all the same
}

func (g *gateway) RoundTrip(r *http.Request) (*http.Response, error) {
	g.mu.Lock()
	status := 0
	if r.Method == http.MethodPut && len(g.status) > 0 {
		status, g.status = g.status[0], g.status[1:]
	}
	g.mu.Unlock()
	if status == 0 {
		return g.RoundTripper.RoundTrip(r)
	}
	if g.reach {
		resp, err := g.RoundTripper.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
	} else if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status), Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func TestGatewayErrors(t *testing.T) {
	s := &store{}
	url, client := s.listen(t)
	g := &gateway{RoundTripper: client.Transport}
	f, err := objectfence.Open(t.Context(), objectfence.Config{URL: url, Client: &http.Client{Transport: g}, Trailer: true, Attempts: 3})
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for _, reach := range []bool{false, true} {
		g.reach = reach
		text := fmt.Sprint("reached: ", reach)
		g.status = []int{503, 429}
		if err := f.Put(ctx, stamp(5, "a"), []byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		content(t, f, text, fence.Mark{Token: 5, Owner: "a"})
	}
	g.reach = false
	g.status = []int{500, 500, 500}
	if err := f.Put(ctx, stamp(5, "a"), []byte("x")); !errors.Is(err, objectfence.ErrUnknown) {
		t.Errorf("no answer at all: got %v, want ErrUnknown", err)
	}
	g.status = []int{403}
	var st *objectfence.StatusError
	if err := f.Put(ctx, stamp(5, "a"), []byte("x")); !errors.As(err, &st) || st.Status != 403 || errors.Is(err, objectfence.ErrUnknown) {
		t.Errorf("forbidden: got %v, want a clear no", err)
	}
	g.status = []int{503, 403}
	if err := f.Put(ctx, stamp(5, "a"), []byte("x")); !errors.Is(err, objectfence.ErrUnknown) {
		t.Errorf("forbidden after no answer: got %v, want ErrUnknown", err)
	}
	g.status = []int{412, 409, 412}
	if err := f.Put(ctx, stamp(5, "a"), []byte("x")); !errors.Is(err, objectfence.ErrBusy) || errors.Is(err, objectfence.ErrUnknown) {
		t.Errorf("others were faster each time: got %v, want ErrBusy", err)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Put(over, stamp(5, "a"), []byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("ctx over: got %v", err)
	}
}

func TestUnfitStoresAreFoundAtOpen(t *testing.T) {
	for reason, s := range map[string]*store{
		objectfence.NoETag:             {etag: "none"},
		objectfence.WeakETag:           {etag: "weak"},
		objectfence.LosesMetadata:      {loseMetadata: true},
		objectfence.IgnoresIfMatch:     {ignoreIfMatch: true},
		objectfence.IgnoresIfNoneMatch: {ignoreIfNoneMatch: true},
		objectfence.SameETag:           {},
	} {
		url, client := s.listen(t)
		_, err := objectfence.Open(t.Context(), objectfence.Config{URL: url, Client: client, Trailer: reason != objectfence.SameETag})
		var unfit *objectfence.UnfitError
		if !errors.As(err, &unfit) || unfit.Reason != reason {
			t.Errorf("%s: got %v", reason, err)
		}
		if len(s.objects) > 0 {
			t.Errorf("%s: left %d objects behind", reason, len(s.objects))
		}
	}
	for _, url := range []string{"", "bucket/", "ftp://x/", "http:///x/", "http://x/bucket", "http://x/b/?sig=secret", "http://x"} {
		if _, err := objectfence.Open(t.Context(), objectfence.Config{URL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("URL %q: got %v", url, err)
		}
	}
	if _, err := objectfence.Open(t.Context(), objectfence.Config{URL: "http://127.0.0.1:1/b/"}); err == nil {
		t.Error("a store that is not there was taken")
	}
}

// What the object has seen must be known exactly, or nothing is written.
func TestBadMarksAreNotZero(t *testing.T) {
	s := &store{}
	f := open(t, s)
	for _, c := range []struct{ name, token, owner, key string }{
		{"text", "abc", "a", "orders%2F17"},
		{"zero", "0", "a", "orders%2F17"},
		{"negative", "-1", "a", "orders%2F17"},
		{"leading zero", "007", "a", "orders%2F17"},
		{"above 2^53", "9007199254740993", "a", "orders%2F17"},
		{"no token", "", "a", "orders%2F17"},
		{"no owner", "7", "", "orders%2F17"},
		{"bad escape", "7", "%zz", "orders%2F17"},
		{"another partition's", "7", "a", "orders%2F18"},
	} {
		meta := http.Header{}
		for k, v := range map[string]string{"Token": c.token, "Owner": c.owner, "Key": c.key} {
			if v != "" {
				meta.Set("X-Amz-Meta-Leasehold-"+k, v)
			}
		}
		s.mu.Lock()
		s.objects = map[string]*object{path: {body: []byte("kept"), meta: meta, etag: `"e"`}}
		s.mu.Unlock()
		if err := f.Put(t.Context(), stamp(50, "w"), []byte("x")); !errors.Is(err, objectfence.ErrBadMark) || errors.Is(err, fence.ErrStale) {
			t.Errorf("%s: put: got %v", c.name, err)
		}
		if err := f.Claim(t.Context(), []fence.Stamp{stamp(50, "w")}); !errors.Is(err, objectfence.ErrBadMark) {
			t.Errorf("%s: claim: got %v", c.name, err)
		}
		if string(s.objects[path].body) != "kept" {
			t.Errorf("%s: the object was changed", c.name)
		}
	}
}

// An object from before the fence is taken as it is: it has seen nothing.
func TestUnguardedObjectIsTakenOver(t *testing.T) {
	s := &store{}
	f := open(t, s)
	s.objects = map[string]*object{path: {body: []byte("old"), meta: http.Header{}, etag: `"e"`}}
	if err := f.Claim(t.Context(), []fence.Stamp{stamp(5, "a")}); err != nil {
		t.Fatal(err)
	}
	content(t, f, "old", fence.Mark{Token: 5, Owner: "a"})
}

func TestClaimIsPerStamp(t *testing.T) {
	var n fence.Tally
	s := &store{}
	url, client := s.listen(t)
	f, err := objectfence.Open(t.Context(), objectfence.Config{URL: url, Client: client, Trailer: true, Counter: &n, MaxBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	at := func(p uint32, token fence.Token) fence.Stamp {
		return fence.Stamp{Keyspace: "k/ü", Partition: p, Token: token, Owner: "w", Resource: map[uint32]string{3: `../"printer" ü`}[p]}
	}
	ctx := t.Context()
	if err := f.Claim(ctx, []fence.Stamp{at(1, 9), at(2, 5), at(3, 5)}); err != nil {
		t.Fatal(err)
	}
	err = f.Claim(ctx, []fence.Stamp{at(1, 8), at(2, 8), at(3, 8)})
	var ce *fence.ClaimError
	if !errors.As(err, &ce) || len(ce.Refused) != 1 || ce.Refused[0].Stamp != at(1, 8) {
		t.Errorf("got %v", err)
	}
	if _, m, _ := f.Get(ctx, at(3, 1).Key()); m.Token != 8 {
		t.Errorf("the named resource has %+v", m)
	}
	if n.Checks() != 6 || n.Rejections() != 1 {
		t.Errorf("tally %d/%d", n.Checks(), n.Rejections())
	}
	if err := f.Put(ctx, at(2, 0), nil); !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("token 0: %v", err)
	}
	if err := f.Put(ctx, at(2, 8), make([]byte, 200)); err != nil {
		t.Fatal(err)
	}
	if err := f.Claim(ctx, []fence.Stamp{at(2, 9)}); !errors.Is(err, objectfence.ErrTooLong) || !strings.Contains(err.Error(), "100") {
		t.Errorf("content above MaxBytes: got %v", err)
	}
}

func TestParallelWritersOfOneLeaseAllGetThrough(t *testing.T) {
	s := &store{}
	url, client := s.listen(t)
	f, err := objectfence.Open(t.Context(), objectfence.Config{URL: url, Client: client, Trailer: true, Attempts: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := f.Put(context.Background(), stamp(5, "a"), []byte(fmt.Sprint("write ", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(s.applied[path]); n != 8 {
		t.Errorf("%d writes applied, want 8", n)
	}
}
