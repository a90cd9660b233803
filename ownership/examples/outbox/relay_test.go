package main

import (
	"database/sql"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/examples/internal/exampletest"
	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

func newOutbox(t *testing.T, partitions int) *relay {
	t.Helper()
	g := opened(t, database(t, "outbox"), false)
	if err := migrate(t.Context(), g.db, partitions); err != nil {
		t.Fatal(err)
	}
	return &relay{outbox: g, partitions: uint32(partitions), keep: 1000, log: slog.New(slog.DiscardHandler)}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// look returns the keys of what a relay would deliver now, and the last number.
func (r *relay) look(t *testing.T) (keys string, last int64) {
	t.Helper()
	events, err := r.pending(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		keys, last = keys+e.Key, e.Seq
	}
	return keys, last
}

// The trap of every outbox: a transaction takes a number and commits after one
// with a higher number was delivered. Here the later one waits.
func TestSlowProducerLosesNothing(t *testing.T) {
	r := newOutbox(t, 1)
	slow := begin(t, r.outbox.db)
	if err := publish(t.Context(), slow, 1, "a", "slow"); err != nil {
		t.Fatal(err)
	}
	fast := make(chan error, 1)
	go func() {
		tx, err := r.outbox.db.BeginTx(t.Context(), nil)
		if err == nil {
			err = publish(t.Context(), tx, 1, "b", "fast")
		}
		if err == nil {
			err = tx.Commit()
		}
		fast <- err
	}()
	exampletest.Eventually(t, 10*time.Second, "the fast producer waits for the slow one", func() bool {
		var waiting int
		err := r.outbox.db.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		keys, _ := r.look(t)
		return err == nil && (waiting == 1 || keys != "")
	})
	delivered, last := r.look(t) // a relay that looks now, and notes how far it got
	if err := r.note(t.Context(), fence.Stamp{Keyspace: "outbox", Token: 1, Owner: "w"}, last); err != nil {
		t.Fatal(err)
	}
	if err := slow.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-fast; err != nil {
		t.Fatal(err)
	}
	after, _ := r.look(t)
	if got := delivered + after; got != "ab" {
		t.Errorf("delivered %q, want ab", got)
	}
}

// A rollback gives its number back: a gap always means a lost event.
func TestRollbackLeavesNoGap(t *testing.T) {
	r := newOutbox(t, 1)
	tx := begin(t, r.outbox.db)
	if err := publish(t.Context(), tx, 1, "a", 1); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := touch(t.Context(), r.outbox.db, 1, "b"); err != nil {
		t.Fatal(err)
	}
	events, err := r.pending(t.Context(), 0)
	if err != nil || len(events) != 1 || events[0].Seq != 1 || events[0].Key != "b" {
		t.Errorf("pending: %v, %v", events, err)
	}
}

// A producer that believes in another number of partitions is refused, and so
// is its change.
func TestPublishToNoPartition(t *testing.T) {
	r := newOutbox(t, 1)
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} {
		_ = touch(t.Context(), r.outbox.db, 64, key)
	}
	var accounts, events int
	err := r.outbox.db.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM account), (SELECT count(*) FROM outbox)`).Scan(&accounts, &events)
	if err != nil || accounts == 6 || accounts != events {
		t.Errorf("%d accounts changed and %d events written, %v: want as many, fewer than 6", accounts, events, err)
	}
	if err := migrate(t.Context(), r.outbox.db, 2); err == nil {
		t.Error("the number of partitions was changed")
	}
}

// O-13 at the progress note: an owner that was paused after a delivery comes
// back and notes what it had delivered.
func TestZombieDoesNotTurnProgressBack(t *testing.T) {
	r := newOutbox(t, 1)
	zombie := fence.Stamp{Keyspace: "outbox", Token: 7, Owner: "a"}
	owner := fence.Stamp{Keyspace: "outbox", Token: 8, Owner: "b"}
	for _, s := range []fence.Stamp{zombie, owner} {
		if err := r.outbox.fence.Claim(t.Context(), []fence.Stamp{s}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.note(t.Context(), owner, 9); err != nil {
		t.Fatal(err)
	}
	if err := r.note(t.Context(), zombie, 5); !errors.Is(err, fence.ErrStale) {
		t.Errorf("the zombie's note: %v, want %v", err, fence.ErrStale)
	}
	var delivered int
	if err := r.outbox.db.QueryRowContext(t.Context(), `SELECT delivered FROM outbox_progress`).Scan(&delivered); err != nil || delivered != 9 {
		t.Errorf("progress is %d, %v, want 9", delivered, err)
	}
}

// What the receiver accepts, event by event.
func TestReceiverAcceptsOnceAndInOrder(t *testing.T) {
	g := opened(t, database(t, "inbox"), false)
	if err := create(t.Context(), g.db, receiverSchema); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	srv := httptest.NewServer((&receiver{inbox: g, log: quiet}).handler())
	defer srv.Close()
	plain := &http.Transport{}
	defer plain.CloseIdleConnections()
	r := &relay{endpoint: srv.URL, client: &http.Client{Transport: &httpfence.Transport{Base: plain}}, log: quiet}
	for _, step := range []struct {
		name  string
		token fence.Token
		owner string
		seq   int64
		want  string
		rows  int
	}{
		{"the first of a younger receiver", 5, "a", 3, "", 1},
		{"the next", 5, "a", 4, "", 2},
		{"a repetition", 5, "a", 4, "", 2},
		{"the successor repeats it", 6, "b", 4, "", 2},
		{"the next, from the zombie", 5, "a", 5, "has seen token 6 of b", 2},
		{"the token of another", 6, "c", 5, "belongs to b", 2},
		{"a gap", 6, "b", 6, "event 6 came and 5 is missing", 2},
		{"no event", 6, "b", 0, "want an event", 2},
		{"the next, from the successor", 6, "b", 5, "", 3},
	} {
		stamp := fence.Stamp{Keyspace: "outbox", Token: step.token, Owner: step.owner}
		err := r.send(fence.NewContext(t.Context(), stamp, ttl), event{Seq: step.seq, Key: "k", Payload: []byte(`{}`)})
		rows := count(t, g.db, `SELECT count(*) FROM inbox`)
		if (err == nil) != (step.want == "") || err != nil && !strings.Contains(err.Error(), step.want) || rows != step.rows {
			t.Errorf("%s: %v and %d events accepted, want %q and %d", step.name, err, rows, step.want, step.rows)
		}
	}
}
