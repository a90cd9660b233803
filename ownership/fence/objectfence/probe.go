package objectfence

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// Reasons why a store will not do.
const (
	NoETag             = "no_etag"
	WeakETag           = "weak_etag"
	LosesMetadata      = "loses_metadata"
	IgnoresIfNoneMatch = "ignores_if_none_match"
	IgnoresIfMatch     = "ignores_if_match"
	RefusesItsOwnETag  = "refuses_its_own_etag"
	SameETag           = "same_etag" // two writes had the same ETag: set Config.Trailer
)

// UnfitError says what a store cannot do that fencing needs. No object of the
// user's was touched.
type UnfitError struct {
	Reason string // one of the constants
	Detail string
}

// Error has the reason and what was seen.
func (e *UnfitError) Error() string {
	return fmt.Sprintf("object store cannot be fenced (%s): %s", e.Reason, e.Detail)
}

// probe writes to an object of its own as Put would, right and wrong.
func (f *Fence) probe(ctx context.Context) (err error) {
	object := "leasehold-probe-" + rand.Text()
	defer func() {
		resp, delErr := f.do(context.WithoutCancel(ctx), http.MethodDelete, object, nil, func(http.Header) {})
		if delErr != nil {
			err = errors.Join(err, delErr)
			return
		}
		resp.Body.Close() // a store that keeps it has a small object too many
	}()
	first := mark{Mark: fence.Mark{Token: 1, Owner: "probe – first"}, key: "probe", write: rand.Text()}
	second := mark{Mark: fence.Mark{Token: 2, Owner: "probe"}, key: "probe", write: rand.Text()}
	content := []byte("probe")

	none := version{}
	if done, err := f.write(ctx, object, none, first, f.wrap(content, first.write)); err != nil || !done {
		return stepError("create an object with If-None-Match: *", err)
	}
	before, err := f.read(ctx, http.MethodGet, object)
	if err != nil {
		return err
	}
	if before.mark != first {
		return &UnfitError{LosesMetadata, fmt.Sprintf("wrote the metadata %+v, read %+v", first, before.mark)}
	}
	switch done, err := f.write(ctx, object, none, second, f.wrap(content, second.write)); {
	case err != nil:
		return stepError("create it again", err)
	case done:
		return &UnfitError{IgnoresIfNoneMatch, "an object was created with If-None-Match: * that was there already"}
	}
	switch done, err := f.write(ctx, object, version{etag: `"00000000000000000000000000000000"`}, second, f.wrap(content, second.write)); {
	case err != nil:
		return stepError("write with a wrong If-Match", err)
	case done:
		return &UnfitError{IgnoresIfMatch, "a write was accepted whose If-Match was wrong"}
	}
	switch done, err := f.write(ctx, object, before, second, f.wrap(content, second.write)); {
	case err != nil:
		return stepError("write with If-Match", err)
	case !done:
		return &UnfitError{RefusesItsOwnETag, fmt.Sprintf("a write was refused with If-Match: %.60s, which the store had given", before.etag)}
	}
	after, err := f.read(ctx, http.MethodHead, object)
	if err != nil {
		return err
	}
	if after.etag == before.etag {
		return &UnfitError{SameETag, "the ETag does not change with the metadata: set Trailer"}
	}
	if after.mark != second {
		return &UnfitError{LosesMetadata, fmt.Sprintf("wrote the metadata %+v, read %+v", second, after.mark)}
	}
	switch done, err := f.write(ctx, object, before, first, f.wrap(content, first.write)); {
	case err != nil:
		return stepError("write with an old If-Match", err)
	case done:
		return &UnfitError{IgnoresIfMatch, "a write was accepted whose If-Match was that of an earlier version"}
	}
	return nil
}

func stepError(step string, err error) error {
	if err == nil {
		err = errors.New("the condition failed, though nothing was there")
	}
	return fmt.Errorf("%s: %w", step, err)
}
