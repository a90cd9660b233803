package objectfence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/fencetest"
	"github.com/leasehold-dev/leasehold/ownership/fence/objectfence"
)

// bucket is one object in a store shared by all trials. A write is held in the
// client between its compare and its PUT.
type bucket struct {
	s       *store
	url     string
	base    http.RoundTripper
	fence   *objectfence.Fence
	guarded bool
	key     fence.Key
	mu      sync.Mutex // guards n
	n       int
}

func (b *bucket) own(s fence.Stamp) fence.Stamp { s.Resource = b.key.Resource; return s }

// Claim implements fencetest.Resource.
func (b *bucket) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if !b.guarded {
		return nil
	}
	return b.fence.Claim(ctx, []fence.Stamp{b.own(stamps[0])})
}

// held lets the PUTs of one write pass when it is told to.
type held struct {
	reached chan struct{} // closed by the first PUT
	once    sync.Once
	goOn    chan struct{} // closed by Commit
}

type heldKey struct{}

// holding is the transport below all writes.
type holding struct{ http.RoundTripper }

func (t holding) RoundTrip(r *http.Request) (*http.Response, error) {
	h, ok := r.Context().Value(heldKey{}).(*held)
	if !ok || r.Method != http.MethodPut {
		return t.RoundTripper.RoundTrip(r)
	}
	h.once.Do(func() { close(h.reached) })
	select {
	case <-h.goOn:
		return t.RoundTripper.RoundTrip(r)
	case <-r.Context().Done():
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, r.Context().Err()
	}
}

type put struct {
	h      *held
	cancel context.CancelFunc
	result chan error
}

// Begin implements fencetest.Resource.
func (b *bucket) Begin(ctx context.Context, s fence.Stamp) (fencetest.Write, error) {
	b.mu.Lock()
	b.n++
	content := []byte(fmt.Sprint("write ", b.n))
	b.mu.Unlock()
	p := &put{h: &held{reached: make(chan struct{}), goOn: make(chan struct{})}, result: make(chan error, 1)}
	ctx, p.cancel = context.WithCancel(context.WithValue(ctx, heldKey{}, p.h))
	go func() {
		if b.guarded {
			p.result <- b.fence.Put(ctx, b.own(s), content)
			return
		}
		p.result <- b.blind(ctx, s, content)
	}()
	select {
	case <-p.h.reached:
		return p, nil
	case err := <-p.result:
		p.cancel()
		if err == nil {
			err = errors.New("done without a PUT")
		}
		return nil, err
	}
}

// blind is a PUT without a condition.
func (b *bucket) blind(ctx context.Context, s fence.Stamp, content []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, b.url+objectfence.ObjectName(b.key), bytes.NewReader(content))
	if err != nil {
		return err
	}
	req.Header.Set("X-Amz-Meta-Leasehold-Token", s.Token.String())
	req.Header.Set("X-Amz-Meta-Leasehold-Owner", s.Owner)
	resp, err := holding{b.base}.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (p *put) Commit(context.Context) error {
	defer p.cancel()
	close(p.h.goOn)
	return <-p.result
}

func (p *put) Crash() {
	p.cancel()
	<-p.result
}

// Accepted implements fencetest.Resource.
func (b *bucket) Accepted(context.Context) ([]fence.Stamp, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	var out []fence.Stamp
	for _, a := range b.s.applied["/bucket/"+objectfence.ObjectName(b.key)] {
		if len(a.body) == 0 {
			continue // a claim
		}
		token, err := strconv.ParseUint(a.token, 10, 64)
		if err != nil {
			return nil, err
		}
		out = append(out, fence.Stamp{Keyspace: "trial", Token: fence.Token(token), Owner: a.owner})
	}
	return out, nil
}

// numbered gives accepted stamps the partition of the trial's own.
type numbered struct {
	*bucket
	trial int
}

func (n numbered) Accepted(ctx context.Context) ([]fence.Stamp, error) {
	out, err := n.bucket.Accepted(ctx)
	for i := range out {
		out[i].Partition = uint32(n.trial % 3)
	}
	return out, err
}

func trials(t *testing.T, opt fencetest.Options, guarded bool) fencetest.Report {
	s := &store{}
	url, client := s.listen(t)
	f, err := objectfence.Open(t.Context(), objectfence.Config{URL: url, Trailer: true, Client: &http.Client{Transport: holding{client.Transport}}})
	if err != nil {
		t.Fatal(err)
	}
	// one answer in fifty is lost
	s.hook(nil, func(*http.Request, int) bool { return guarded && rand.IntN(50) == 0 })
	return fencetest.Run(t, opt, func(n int) (fencetest.Resource, error) {
		return numbered{&bucket{s: s, url: url, base: client.Transport, fence: f, guarded: guarded, key: fence.Key{Resource: fmt.Sprint("trial ", n)}}, n}, nil
	})
}

// 1,000 trials: go test ./ownership/fence/objectfence -args -fencetest.trials=1000
func TestTrials(t *testing.T) {
	if report := trials(t, fencetest.Options{Trials: 500, Parallel: 4}, true); !report.OK() {
		t.Errorf("%s\n%s", report, report.First)
	}
}

func TestTrialsFindAnUnguardedObject(t *testing.T) {
	if report := trials(t, fencetest.Options{Trials: 60, Parallel: 4}, false); report.Stale == 0 {
		t.Errorf("no stale write without a guard: the trials prove nothing: %s", report)
	}
}
