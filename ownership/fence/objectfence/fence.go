package objectfence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Config says where the objects are and how the store is spoken to.
type Config struct {
	// URL is what the object names are appended to, such as
	// "https://bucket.s3.eu-central-1.amazonaws.com/orders/". Required; with
	// http or https, a host, and a slash at its end; without a query.
	URL string

	// Client makes the requests, and signs them if the store wants that, in
	// its Transport. Its Timeout bounds each request. Default:
	// http.DefaultClient, which has none.
	Client *http.Client

	// Trailer ends every content with a line "leasehold-write" and a random
	// id, which Get takes off again. It is needed in stores whose ETag is a
	// hash of the content. Never change it for objects that exist.
	Trailer bool

	// MetaPrefix begins the headers of the store's user metadata. Default:
	// "x-amz-meta-".
	MetaPrefix string

	// Object names the object of a key, relative to URL and escaped for it.
	// Two keys must never have the same. Default: ObjectName.
	Object func(fence.Key) string

	// ContentType of the objects. Default: application/octet-stream.
	ContentType string

	// MaxBytes is the longest content that Get and Claim read. Default: 64 MiB.
	MaxBytes int64

	// Attempts is how often a write is tried when others were faster or the
	// store did not answer. Default: 10.
	Attempts int

	// Counter hears of each decision. Default: nobody.
	Counter fence.Counter
}

// ObjectName is "partition/orders/17", or "resource/ledger" for a named one,
// escaped.
func ObjectName(k fence.Key) string {
	if k.Resource != "" {
		return "resource/" + url.QueryEscape(k.Resource)
	}
	return "partition/" + url.QueryEscape(k.Keyspace) + "/" + strconv.FormatUint(uint64(k.Partition), 10)
}

// ErrNotFound is returned by Get if nothing has been written yet.
var ErrNotFound = errors.New("object not found")

// ErrTooLong is matched by the error about an object that Get and Claim do not
// read.
var ErrTooLong = errors.New("object is longer than MaxBytes")

// ErrBusy is matched by the error of a write that others were faster than, at
// each of Config.Attempts tries. It was not made.
var ErrBusy = errors.New("object is written to by others all the time")

// ErrUnknown is matched by the error of a write of which it is not known
// whether it was made.
var ErrUnknown = errors.New("outcome of the write is unknown")

// Fence guards the objects below one URL. It keeps no state, so any number of
// processes may each have one. It is safe for concurrent use.
type Fence struct {
	cfg  Config
	base string
}

// Open checks the configuration and then the store, with a few requests to an
// object of its own that it deletes. An *UnfitError says what the store cannot
// do; any other error, that it could not be asked.
func Open(ctx context.Context, cfg Config) (*Fence, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || len(u.Path) == 0 || u.Path[len(u.Path)-1] != '/' {
		return nil, errors.New("object store's URL: want http:// or https://, a host and a path that ends in /, without a query")
	}
	if cfg.Attempts < 0 || cfg.MaxBytes < 0 {
		return nil, fmt.Errorf("attempts %d, max bytes %d: want 0 for the default, or more", cfg.Attempts, cfg.MaxBytes)
	}
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	if cfg.Object == nil {
		cfg.Object = ObjectName
	}
	if cfg.MetaPrefix == "" {
		cfg.MetaPrefix = "x-amz-meta-"
	}
	if cfg.ContentType == "" {
		cfg.ContentType = "application/octet-stream"
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 64 << 20
	}
	if cfg.Attempts == 0 {
		cfg.Attempts = 10
	}
	f := &Fence{cfg: cfg, base: cfg.URL}
	if err := f.probe(ctx); err != nil {
		return nil, fmt.Errorf("try out the object store: %w", err)
	}
	return f, nil
}

// Put replaces the content of the stamp's object if the stamp is accepted. The
// error is a *fence.StaleError if it is not; otherwise it matches ErrUnknown
// if the content may have been replaced all the same, and does not if not.
func (f *Fence) Put(ctx context.Context, s fence.Stamp, content []byte) error {
	err := f.change(ctx, s, http.MethodHead, func(version) ([]byte, bool) { return content, false })
	fence.Count(f.cfg.Counter, 1, err)
	return err
}

// Claim implements fence.Guard: it writes each stamp's object anew, with the
// same content. It takes two requests for each stamp, one after the other, so
// it is meant for tens of partitions rather than thousands.
func (f *Fence) Claim(ctx context.Context, stamps []fence.Stamp) error {
	if err := fence.Validate(stamps); err != nil {
		return err
	}
	var refused []*fence.StaleError
	for _, s := range fence.Sorted(stamps) {
		err := f.change(ctx, s, http.MethodGet, func(v version) ([]byte, bool) { return f.unwrap(v), !v.exists() || v.mark.empty })
		var stale *fence.StaleError
		switch {
		case errors.As(err, &stale):
			refused = append(refused, stale)
		case err != nil:
			return fmt.Errorf("claim %s: %w", s, err)
		}
	}
	var err error
	if len(refused) > 0 {
		err = &fence.ClaimError{Refused: refused}
	}
	fence.Count(f.cfg.Counter, len(stamps), err)
	return err
}

// Get returns the content of a key's object and its mark. It returns
// ErrNotFound, and the mark, if nothing was written yet.
func (f *Fence) Get(ctx context.Context, k fence.Key) ([]byte, fence.Mark, error) {
	v, err := f.read(ctx, http.MethodGet, f.cfg.Object(k))
	switch {
	case err != nil:
		return nil, fence.Mark{}, err
	case !v.exists() || v.mark.empty:
		return nil, v.mark.Mark, fmt.Errorf("%s: %w", k, ErrNotFound)
	}
	return f.unwrap(v), v.mark.Mark, nil
}

// change reads, compares and writes on the condition that nothing has changed
// in between, until it has written or is refused. next makes the new content,
// and says whether it stands for none.
func (f *Fence) change(ctx context.Context, s fence.Stamp, method string, next func(version) ([]byte, bool)) error {
	if err := s.Validate(); err != nil {
		return err
	}
	var (
		object = f.cfg.Object(s.Key())
		m      = mark{Mark: fence.Mark{Token: s.Token, Owner: s.Owner}, key: s.Key().String(), write: rand.Text()}
		// A PUT without an answer: which version it was for, and why. It may
		// still be on its way.
		open *version
		last error
	)
	for try := range f.cfg.Attempts {
		if try > 0 && !pause(ctx, try, last) {
			break
		}
		seen, err := f.read(ctx, method, object)
		if err != nil {
			if last = err; !temporary(err) {
				break
			}
			continue
		}
		if seen.mark.write == m.write {
			return nil // it was ours whose answer got lost
		}
		if open != nil && open.etag != seen.etag {
			break // ours came first and was written over, or came too late: nobody can tell
		}
		if seen.mark.Token != 0 && seen.mark.key != m.key {
			return fmt.Errorf("object %q: %w: it is of %.60q, not of %q", object, ErrBadMark, seen.mark.key, m.key)
		}
		if err := fence.Check(seen.mark.Mark, s); err != nil {
			return err
		}
		content, empty := next(seen)
		m.empty = empty
		done, err := f.write(ctx, object, seen, m, f.wrap(content, m.write))
		switch {
		case done:
			return nil
		case err == nil:
			last = ErrBusy
		case temporary(err):
			open, last = &seen, err
		default:
			return unlessOpen(open, err)
		}
	}
	if last == nil {
		last = ctx.Err()
	}
	return unlessOpen(open, fmt.Errorf("write to %s, object %q: %w", s, object, last))
}

func unlessOpen(open *version, err error) error {
	if open != nil {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// temporary tells whether to ask again, and that a PUT may have been applied:
// everything but a clear answer.
func temporary(err error) bool {
	var (
		st    *StatusError
		unfit *UnfitError
	)
	if errors.As(err, &st) {
		return st.temporary()
	}
	return !errors.As(err, &unfit) && !errors.Is(err, ErrBadMark) && !errors.Is(err, ErrTooLong)
}

// pause waits a little before the next try: hardly if somebody was faster,
// longer and longer if the store does not answer.
func pause(ctx context.Context, try int, last error) bool {
	wait := min(10*time.Millisecond<<try, 2*time.Second)
	if errors.Is(last, ErrBusy) {
		wait = time.Millisecond
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
