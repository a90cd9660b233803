package api

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// Limits of the API beside those of the state machine.
const (
	// minTTLElections is how many election timeouts a TTL has at least, so that
	// a change of leader never stops an owner.
	minTTLElections = 6

	maxListLimit = 100_000

	minHandoffTimeout = 100 * time.Millisecond
	maxInitialDelay   = 5 * time.Second
	maxSessionID      = 1<<63 - 1
)

// checkName holds names to the state machine's alphabet, and names the field as
// the caller knows it.
func checkName(field, name string) error {
	var r *state.Refusal
	if errors.As(state.ValidateName("name", field, name), &r) {
		return invalid(field, name, "want "+r.Limit)
	}
	return nil
}

// checkText bounds free text that is only shown: no control characters.
func checkText(field, v string, most int) error {
	if len(v) > most {
		return invalid(field, v, fmt.Sprintf("want at most %d bytes, not %d", most, len(v)))
	}
	if !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
		return invalid(field, v, "want UTF-8 without control characters")
	}
	return nil
}

func checkPartitions(field string, p uint32) error {
	if p == 0 || p > state.MaxPartitions {
		return invalid(field, strconv.FormatUint(uint64(p), 10), fmt.Sprintf("want 1 to %d", state.MaxPartitions))
	}
	return nil
}

// checkTTL names the floor and where it comes from.
func (a *API) checkTTL(field string, ms int64) error {
	floor := minTTLElections * a.cfg.ElectionTimeout
	if ms < floor.Milliseconds() || ms > state.MaxTTL.Milliseconds() {
		return invalid(field, strconv.FormatInt(ms, 10), fmt.Sprintf(
			"want %d to %d ms: at least %d election timeouts of %v, at most %v",
			floor.Milliseconds(), state.MaxTTL.Milliseconds(), minTTLElections, a.cfg.ElectionTimeout, state.MaxTTL))
	}
	return nil
}

func checkMillis(field string, ms int64, low, high time.Duration) error {
	if ms < low.Milliseconds() || ms > high.Milliseconds() {
		return invalid(field, strconv.FormatInt(ms, 10), fmt.Sprintf("want %d to %d ms", low.Milliseconds(), high.Milliseconds()))
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	if len(labels) > state.MaxLabels {
		return invalid("labels", strconv.Itoa(len(labels)), fmt.Sprintf("want at most %d", state.MaxLabels))
	}
	for k, v := range labels {
		if k == "" {
			return invalid("labels", k, "want no empty key")
		}
		if err := checkText("labels", k, state.MaxLabelLen); err != nil {
			return err
		}
		if err := checkText("labels", v, state.MaxLabelLen); err != nil {
			return err
		}
	}
	return nil
}

// checkCluster refuses a caller that belongs to another cluster. An empty id
// is a first contact.
func checkCluster(have, want string) error {
	if have == "" || have == want {
		return nil
	}
	return fail(&pb.ErrorDetail{
		Reason: pb.ReasonWrongCluster, Field: "cluster_id", Value: shorten(have), Limit: want,
		Message: fmt.Sprintf("cluster_id %q: this is cluster %q", shorten(have), want),
	})
}
