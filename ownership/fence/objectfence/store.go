package objectfence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// StatusError is an answer of the store that is neither success nor a failed
// condition.
type StatusError struct {
	Method, Object string
	Status         int
	Detail         string // the start of the body
}

// Error names the request and the answer.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%s object %q: status %d %s: %s", e.Method, e.Object, e.Status, http.StatusText(e.Status), e.Detail)
}

// temporary tells whether asking again can help. Then it is not known either
// whether a PUT has been applied.
func (e *StatusError) temporary() bool {
	return e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusRequestTimeout
}

// version is what is stored under a name; the zero version: nothing.
type version struct {
	etag string
	mark mark
	body []byte // of a GET
}

func (v version) exists() bool { return v.etag != "" }

func (f *Fence) do(ctx context.Context, method, object string, body []byte, set func(http.Header)) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.base+object, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	set(req.Header)
	resp, err := f.cfg.Client.Do(req)
	if err != nil {
		var ue *url.Error // has the URL, in which there may be a signature
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return nil, fmt.Errorf("%s object %q: %w", method, object, err)
	}
	return resp, nil
}

// read asks for the object by HEAD or GET.
func (f *Fence) read(ctx context.Context, method, object string) (version, error) {
	resp, err := f.do(ctx, method, object, nil, func(h http.Header) {
		h.Set("Cache-Control", "no-cache")
		h.Set("Accept-Encoding", "identity") // else net/http decodes, and some stores weaken the ETag
	})
	if err != nil {
		return version{}, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return version{}, nil
	case resp.StatusCode != http.StatusOK:
		return version{}, statusError(method, object, resp)
	}
	v := version{etag: resp.Header.Get("ETag")}
	if v.etag == "" {
		return version{}, &UnfitError{Reason: NoETag, Detail: fmt.Sprintf("object %q has no ETag", object)}
	}
	if strings.HasPrefix(v.etag, "W/") {
		return version{}, &UnfitError{Reason: WeakETag, Detail: fmt.Sprintf("object %q has the weak ETag %.40s", object, v.etag)}
	}
	if v.mark, err = parseMark(resp.Header, f.cfg.MetaPrefix); err != nil {
		return version{}, fmt.Errorf("object %q: %w", object, err)
	}
	if method == http.MethodGet {
		v.body, err = io.ReadAll(io.LimitReader(resp.Body, f.cfg.MaxBytes+1))
		if err != nil {
			return version{}, fmt.Errorf("GET object %q: %w", object, err)
		}
		if int64(len(v.body)) > f.cfg.MaxBytes {
			return version{}, fmt.Errorf("object %q: %w: %d bytes", object, ErrTooLong, f.cfg.MaxBytes)
		}
	}
	return v, nil
}

// write puts the object if it is still at the version that was seen. false
// means that it is not, and that nothing was changed.
func (f *Fence) write(ctx context.Context, object string, seen version, m mark, body []byte) (bool, error) {
	resp, err := f.do(ctx, http.MethodPut, object, body, func(h http.Header) {
		if seen.exists() {
			h.Set("If-Match", seen.etag)
		} else {
			h.Set("If-None-Match", "*")
		}
		h.Set("Content-Type", f.cfg.ContentType)
		m.set(h, f.cfg.MetaPrefix)
	})
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated, http.StatusNoContent:
		return true, nil
	case http.StatusPreconditionFailed,
		http.StatusConflict: // S3: another conditional write is under way
		return false, nil
	case http.StatusNotFound:
		if seen.exists() { // S3: it was deleted meanwhile
			return false, nil
		}
	}
	return false, statusError(http.MethodPut, object, resp)
}

func statusError(method, object string, resp *http.Response) error {
	start, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	return &StatusError{Method: method, Object: object, Status: resp.StatusCode, Detail: strings.ToValidUTF8(strings.TrimSpace(string(start)), "?")}
}

// trailer ends a content so that no two writes have the same.
const trailerLead = "\nleasehold-write "

func (f *Fence) wrap(body []byte, id string) []byte {
	if !f.cfg.Trailer {
		return body
	}
	return append(append(bytes.Clone(body), trailerLead...), id+"\n"...)
}

// unwrap takes the trailer off. An object that was there before it was guarded
// has none.
func (f *Fence) unwrap(v version) []byte {
	if f.cfg.Trailer && v.mark.write != "" {
		return bytes.TrimSuffix(v.body, []byte(trailerLead+v.mark.write+"\n"))
	}
	return v.body
}
