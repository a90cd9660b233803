package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
)

// O-71: tokens are compared as exact integers, in claims and in writes. As text
// "10" is below "9"; printed by Lua, 2^53-2 and 2^53-1 are the same number.
func TestTokensAreComparedExactly(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	for i, pair := range [][2]fence.Token{
		{9, 10}, {99, 100}, {1, 2},
		{99_999_999_999_999, 100_000_000_000_000}, // 14 digits, where %.14g ends
		{123_456_789_012_345, 123_456_789_012_346},
		{9007199254740989, 9007199254740990},
		{9007199254740990, 9007199254740991},
	} {
		for j, accept := range []func(fence.Stamp) error{
			func(s fence.Stamp) error { return f.Claim(ctx, []fence.Stamp{s}) },
			func(s fence.Stamp) error { return push(ctx, f, s, s.Token.String()) },
		} {
			low, high := at(uint32(2*i+j), pair[0], "a"), at(uint32(2*i+j), pair[1], "b")
			if err := accept(low); err != nil {
				t.Fatalf("first token %d: %v", low.Token, err)
			}
			if err := accept(high); err != nil {
				t.Fatalf("%d after %d: %v", high.Token, low.Token, err)
			}
			err := accept(low)
			wantReason(t, err, fence.ReasonStale)
			var stale *fence.StaleError
			if errors.As(err, &stale); stale.Current != high.Token || stale.CurrentOwner != "b" || stale.Stamp != low {
				t.Errorf("the refusal of %d says %+v", low.Token, stale)
			}
			if stored := c.HGet(ctx, f.MarkKey(high.Key()), "token").Val(); stored != high.Token.String() {
				t.Errorf("stored %q, want %d: a number was printed", stored, high.Token)
			}
			wantSeen(t, f, high.Key(), fence.Mark{Token: high.Token, Owner: "b"})
		}
		if got := lines(t, c, at(uint32(2*i+1), 1, "").Key()); !reflect.DeepEqual(got, []string{pair[0].String(), pair[1].String()}) {
			t.Errorf("written %q", got)
		}
	}
}

// O-71: a mark that is no token in its only form is not compared, whichever way
// it would have come out. Nothing is written and the mark stays as it is.
func TestDamagedMarkAcceptsNothing(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	mark := f.MarkKey(orders17)
	for _, text := range []string{
		"007", " 10", "10 ", "", "ten", "0", "-1", "-5", "1.5", "1e3", "0x10", "+7", "nan", "inf", "1_000", "٣", "10\n", "10\x00",
		"9007199254740992", "9007199254740993", "9999999999999999", "18446744073709551616", strings.Repeat("9", 400),
	} {
		for _, s := range []fence.Stamp{at(17, 1, "a"), at(17, fence.MaxToken, "a")} {
			c.Del(ctx, mark)
			c.HSet(ctx, mark, "token", text, "owner", "a")
			var damaged *redisfence.CorruptError
			err := push(ctx, f, s, "x")
			if !errors.As(err, &damaged) || !errors.Is(err, redisfence.ErrCorrupt) || damaged.Field != "token" || damaged.Value != text || damaged.Key != orders17 {
				t.Errorf("token %.20q in the store, write: got %v", text, err)
			}
			if len(err.Error()) > 300 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if err := f.Claim(ctx, []fence.Stamp{s}); !errors.Is(err, redisfence.ErrCorrupt) || errors.Is(err, fence.ErrStale) {
				t.Errorf("token %.20q in the store, claim: got %v", text, err)
			}
			if _, err := f.Seen(ctx, orders17); !errors.Is(err, redisfence.ErrCorrupt) {
				t.Errorf("token %.20q in the store, seen: got %v", text, err)
			}
			if got := c.HGetAll(ctx, mark).Val(); !reflect.DeepEqual(got, map[string]string{"token": text, "owner": "a"}) {
				t.Errorf("the mark was changed to %q", got)
			}
		}
	}
	for what, spoil := range map[string]func(){
		"no owner":      func() { c.HSet(ctx, mark, "token", "5") },
		"empty owner":   func() { c.HSet(ctx, mark, "token", "5", "owner", "") },
		"no token":      func() { c.HSet(ctx, mark, "owner", "a") },
		"foreign hash":  func() { c.HSet(ctx, mark, "colour", "red") },
		"a string":      func() { c.Set(ctx, mark, "5", 0) },
		"a list":        func() { c.RPush(ctx, mark, "5") },
		"a sorted set":  func() { c.ZAdd(ctx, mark, redis.Z{Score: 5, Member: "a"}) },
		"a stream":      func() { c.XAdd(ctx, &redis.XAddArgs{Stream: mark, Values: []string{"a", "b"}}) },
		"a hyperloglog": func() { c.PFAdd(ctx, mark, "a") },
	} {
		c.Del(ctx, mark)
		spoil()
		if err := push(ctx, f, at(17, 6, "a"), "x"); !errors.Is(err, redisfence.ErrCorrupt) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if got := lines(t, c, orders17); len(got) != 0 {
		t.Errorf("written in spite of a damaged mark: %q", got)
	}
	// An absent mark has seen nothing.
	c.Del(ctx, mark)
	wantSeen(t, f, orders17, fence.Mark{})
	if err := push(ctx, f, at(17, 6, "a"), "x"); err != nil {
		t.Error(err)
	}
}

// An expiry lowers a mark to nothing, so the package sets none. One that
// somebody else sets does what it must not.
func TestMarksHaveNoExpiry(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	if err := errors.Join(f.Claim(ctx, []fence.Stamp{at(17, 33, "a")}), push(ctx, f, at(17, 34, "b"), "x")); err != nil {
		t.Fatal(err)
	}
	if ttl := c.TTL(ctx, f.MarkKey(orders17)).Val(); ttl != -1 {
		t.Errorf("the mark expires in %s", ttl)
	}
	c.PExpire(ctx, f.MarkKey(orders17), time.Millisecond)
	eventually(t, "the expiry", func() bool { return c.Exists(ctx, f.MarkKey(orders17)).Val() == 0 })
	wantSeen(t, f, orders17, fence.Mark{})
	if err := push(ctx, f, at(17, 33, "a"), "late"); err != nil {
		t.Errorf("after the expiry: %v", err)
	}
}

// O-73: the owner stands beside the token.
func TestEqualTokenOfAnotherOwner(t *testing.T) {
	var n fence.Tally
	f, c := newFence(t, redisfence.WithCounter(&n))
	ctx := t.Context()
	for range 2 {
		if err := push(ctx, f, at(17, 5, "A"), "A"); err != nil {
			t.Fatal(err)
		}
	}
	err := push(ctx, f, at(17, 5, "B"), "B")
	wantReason(t, err, fence.ReasonOtherOwner)
	if !errors.Is(err, fence.ErrOtherOwner) || !errors.Is(err, fence.ErrStale) {
		t.Error("the sentinels do not match")
	}
	if err := f.Claim(ctx, []fence.Stamp{at(17, 5, "B")}); !errors.Is(err, fence.ErrOtherOwner) {
		t.Errorf("claim: %v", err)
	}
	if err := f.Claim(ctx, []fence.Stamp{at(17, 5, "A")}); err != nil {
		t.Errorf("claim by the owner: %v", err)
	}
	if got := lines(t, c, orders17); fmt.Sprint(got) != "[A A]" {
		t.Errorf("written %v", got)
	}
	if n.Checks() != 5 || n.Rejections() != 2 || n.OtherOwner() != 2 {
		t.Errorf("counted %d checks, %d refusals, %d of another owner; want 5, 2, 2", n.Checks(), n.Rejections(), n.OtherOwner())
	}
}

// A refused write leaves no trace, whatever it would have written.
func TestZombieBouncesBeforeTheNewOwnersFirstWrite(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	if err := errors.Join(f.Claim(ctx, []fence.Stamp{at(17, 33, "w2")}), f.Claim(ctx, []fence.Stamp{at(17, 34, "w4")})); err != nil {
		t.Fatal(err)
	}
	_, err := f.Do(ctx, at(17, 33, "w2"),
		redisfence.Command("RPUSH", journal(orders17), "late"),
		redisfence.Command("DEL", redisfence.Under(orders17, "other")))
	wantReason(t, err, fence.ReasonStale)
	if want := "write to orders/17 token 33 of w2 refused: the resource has seen token 34 of w4"; err.Error() != want {
		t.Errorf("message %q, want %q", err, want)
	}
	if n := c.DBSize(ctx).Val(); n != 1 {
		t.Errorf("%d keys, want the mark alone", n)
	}
}

// A claim is per stamp, in one call the higher of two tokens wins, and a
// neighbour's refusal holds nobody up.
func TestClaimIsPerStamp(t *testing.T) {
	var n fence.Tally
	f, _ := newFence(t, redisfence.WithCounter(&n))
	ctx := t.Context()
	if err := f.Claim(ctx, []fence.Stamp{at(1, 10, "a"), at(2, 11, "a"), at(3, 12, "a")}); err != nil {
		t.Fatal(err)
	}
	err := f.Claim(ctx, []fence.Stamp{at(3, 20, "b"), at(2, 9, "b"), at(1, 10, "b"), at(4, 8, "b"), at(3, 19, "b")})
	var refused *fence.ClaimError
	if !errors.As(err, &refused) || len(refused.Refused) != 3 {
		t.Fatalf("got %v, want three refusals", err)
	}
	var got []string
	for _, r := range refused.Refused {
		got = append(got, fmt.Sprintf("%d:%s:%d", r.Partition, r.Reason, r.Current))
	}
	if want := "[1:other_owner:10 2:stale:11 3:stale:20]"; fmt.Sprint(got) != want {
		t.Errorf("refused %v, want %s", got, want)
	}
	wantSeen(t, f, fence.Key{Keyspace: "orders", Partition: 3}, fence.Mark{Token: 20, Owner: "b"})
	wantSeen(t, f, fence.Key{Keyspace: "orders", Partition: 4}, fence.Mark{Token: 8, Owner: "b"})
	if n.Checks() != 8 || n.Rejections() != 3 || n.OtherOwner() != 1 {
		t.Errorf("counted %d, %d, %d; want 8, 3, 1", n.Checks(), n.Rejections(), n.OtherOwner())
	}
	if err := f.Claim(ctx, nil); err != nil {
		t.Errorf("claim of nothing: %v", err)
	}
}

func TestInvalidStampSendsNothing(t *testing.T) {
	f, c := newFence(t)
	for _, s := range []fence.Stamp{
		{Partition: 1, Token: 1, Owner: "a"}, {Keyspace: "orders", Token: 1}, {Keyspace: "orders", Owner: "a"},
		{Keyspace: "orders", Owner: "a", Token: fence.MaxToken + 1},
		{Keyspace: "orders", Owner: "a", Token: 1, Resource: strings.Repeat("x", 1<<20)},
	} {
		if err := f.Claim(t.Context(), []fence.Stamp{at(1, 1, "a"), s}); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("claim: got %.100v", err)
		}
		if err := push(t.Context(), f, s, "x"); !errors.Is(err, fence.ErrInvalid) {
			t.Errorf("write: got %.100v", err)
		}
	}
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

// The replies come back as Redis gave them, the nil ones too.
func TestRepliesOfCommands(t *testing.T) {
	f, c := newFence(t)
	ctx := t.Context()
	k := func(name string) redisfence.DataKey { return redisfence.Under(orders17, name) }
	got, err := f.Do(ctx, at(17, 33, "a"),
		redisfence.Command("SET", k("n"), math.MaxInt64-1),
		redisfence.Command("GET", k("absent")),
		redisfence.Command("RPUSH", k("l"), "a", []byte("b\x00\xff"), 3, uint8(4), 1.5),
		redisfence.Command("LRANGE", k("l"), 0, -1),
		redisfence.Command("MSET", k("x"), 1, k("y"), -2),
		redisfence.Command("INCR", k("n")),
		redisfence.Command("HGETALL", k("absent")),
		redisfence.Command("INCRBY", k("c"), 42),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []any{"OK", nil, int64(5), []any{"a", "b\x00\xff", "3", "4", "1.5"}, "OK", got[5], []any{}, int64(42)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("replies %#v, want %#v", got, want)
	}
	if n := c.Get(ctx, string(k("n"))).Val(); n != strconv.Itoa(math.MaxInt64) {
		t.Errorf("stored %s: a number went through a float", n)
	}
}

// What cannot be right is refused before anything is sent.
func TestInvalidCommands(t *testing.T) {
	f, c := newFence(t)
	k := journal(orders17)
	long := make([]any, redisfence.MaxWords)
	for i := range long {
		long[i] = k
	}
	for what, cmds := range map[string][]redisfence.Cmd{
		"none":               nil,
		"no name":            {redisfence.Command("", k)},
		"two words":          {redisfence.Command("RPUSH x", k)},
		"no key":             {redisfence.Command("SET", "a", "b")},
		"second has no key":  {redisfence.Command("RPUSH", k, 1), redisfence.Command("FLUSHALL")},
		"a time":             {redisfence.Command("SET", k, time.Now())},
		"a duration":         {redisfence.Command("PEXPIRE", k, time.Second)},
		"nil":                {redisfence.Command("SET", k, nil)},
		"a struct":           {redisfence.Command("SET", k, struct{}{})},
		"the mark":           {redisfence.Command("DEL", redisfence.DataKey(f.MarkKey(orders17)))},
		"too many arguments": {redisfence.Command("RPUSH", long...)},
	} {
		if _, err := f.Do(t.Context(), at(17, 1, "a"), cmds...); !errors.Is(err, redisfence.ErrInvalidCommand) || len(err.Error()) > 300 {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
	// The longest command that is let through is one that Lua can take.
	longest := make([]any, redisfence.MaxWords-1)
	longest[0] = k
	for i := range longest[1:] {
		longest[i+1] = i
	}
	got, err := f.Do(t.Context(), at(17, 1, "a"), redisfence.Command("RPUSH", longest...), redisfence.Command("RPUSH", longest...))
	if err != nil || !reflect.DeepEqual(got, []any{int64(redisfence.MaxWords - 2), int64(2 * (redisfence.MaxWords - 2))}) {
		t.Errorf("longest command: %v, %v", got, err)
	}
}

// Redis has no rollback: what ran before a failing command stays, what comes
// after it does not run, and the error says so.
func TestCommandThatFailsInTheMiddle(t *testing.T) {
	var n fence.Tally
	f, c := newFence(t, redisfence.WithCounter(&n))
	ctx := t.Context()
	text := redisfence.Under(orders17, "text")
	c.Set(ctx, string(text), "not a list", 0)
	for i, middle := range []redisfence.Cmd{
		redisfence.Command("RPUSH", text, "x"),          // WRONGTYPE
		redisfence.Command("NOSUCH", text, "x"),         // unknown
		redisfence.Command("SUBSCRIBE", text),           // not allowed in scripts
		redisfence.Command("SET", text),                 // number of arguments
		redisfence.Command("INCR", text),                // not a number
		redisfence.Command("EVAL", "return 1", 1, text), // no script in a script
	} {
		c.Del(ctx, string(journal(orders17)))
		s := at(17, fence.Token(33+i), "a")
		_, err := f.Do(ctx, s, redisfence.Command("RPUSH", journal(orders17), "before"), middle, redisfence.Command("RPUSH", journal(orders17), "after"))
		var failed *redisfence.CommandError
		if !errors.As(err, &failed) {
			t.Fatalf("command %d: got %v, want a *CommandError", i, err)
		}
		if failed.Index != 1 || failed.Stamp != s || !reflect.DeepEqual(failed.Replies, []any{int64(1)}) || errors.Is(err, redisfence.ErrNotRun) {
			t.Errorf("command %d: %+v", i, failed)
		}
		if i == 0 && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			t.Errorf("redis.HasErrorPrefix does not find WRONGTYPE in %v", err)
		}
		if got := lines(t, c, orders17); fmt.Sprint(got) != "[before]" {
			t.Errorf("command %d: written %v, want what came before alone", i, got)
		}
		wantSeen(t, f, orders17, fence.Mark{Token: s.Token, Owner: "a"})
	}
	// The first one: nothing was written.
	_, err := f.Do(ctx, at(17, 99, "a"), redisfence.Command("RPUSH", text, "x"), redisfence.Command("DEL", text))
	if !errors.Is(err, redisfence.ErrNotRun) || c.Get(ctx, string(text)).Val() != "not a list" {
		t.Errorf("first command fails: %v", err)
	}
	if n.Checks() != 7 || n.Rejections() != 0 {
		t.Errorf("counted %d checks and %d refusals, want 7 and 0: the stamps were accepted", n.Checks(), n.Rejections())
	}
}

// O-76: no decision depends on a client's clock, because none is read: no file
// of the package imports one. What is stored is the server's time.
func TestNoClientClock(t *testing.T) {
	files, _ := filepath.Glob("*.go")
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range file.Imports {
			if imp.Path.Value == `"time"` {
				t.Errorf("%s imports time", name)
			}
		}
	}
	f, c := newFence(t)
	ctx := t.Context()
	before := c.Time(ctx).Val().Unix()
	if err := f.Claim(ctx, []fence.Stamp{at(17, 33, "a")}); err != nil {
		t.Fatal(err)
	}
	stored, err := c.HGet(ctx, f.MarkKey(orders17), "at").Int64()
	if after := c.Time(ctx).Val().Unix(); err != nil || stored < before || stored > after {
		t.Errorf("at is %d, %v; want the server's time, %d to %d", stored, err, before, after)
	}
	c.HSet(ctx, f.MarkKey(orders17), "at", "99999999999") // a clock far ahead, once
	if err := errors.Join(push(ctx, f, at(17, 33, "a"), "x"), push(ctx, f, at(17, 34, "b"), "x")); err != nil {
		t.Errorf("the stored time took part in a decision: %v", err)
	}
}

// The script that is shipped for other languages is the one that runs, and it
// refuses by itself what the Go side never sends.
func TestPlainScript(t *testing.T) {
	_, c := newFence(t)
	ctx := t.Context()
	plain, err := os.ReadFile("lua/fence.lua")
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := redisfence.Scripts.ReadFile("lua/fence.lua")
	if err != nil || string(embedded) != string(plain) {
		t.Error("Scripts has another text than the file")
	}
	run := func(args ...any) string {
		v, err := c.Eval(ctx, string(plain), []string{"m", "k"}, args...).Result()
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return fmt.Sprint(v)
	}
	for _, token := range []any{"", "0", "-1", "007", " 10", "1e3", "9007199254740992", "x"} {
		if got := run(token, "a", 3, "SET", "k", "v"); got != fmt.Sprintf("[invalid token %v]", token) {
			t.Errorf("token %q: %s", token, got)
		}
	}
	if got := run("5", ""); got != "[invalid owner ]" {
		t.Error(got)
	}
	for _, words := range []string{"0", "-1", "1.5", "x", "", "4", "2", "7001", "nan", "inf"} {
		if got := run("5", "a", words, "SET", "k", "v"); got != fmt.Sprintf("[invalid words %s]", words) && got != "[invalid words v]" {
			t.Errorf("%s words: %s", words, got)
		}
	}
	if n := c.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
	for _, step := range []struct{ got, want string }{
		{run("5", "a", 3, "SET", "k", "v", 2, "GET", "k"), "[ok OK v]"},
		{run("4", "b", 3, "SET", "k", "w"), "[stale 5 a]"},
		{run("5", "b"), "[other_owner 5 a]"},
		{run("6", "b", 2, "GET", "k", 2, "INCR", "k", 2, "DEL", "k"), "[failed 2 ERR value is not an integer or out of range v]"},
	} {
		if step.got != step.want {
			t.Errorf("got %s, want %s", step.got, step.want)
		}
	}
}

// A claim never lets its answer be waited for longer than its context.
func TestContextThatIsOver(t *testing.T) {
	f, c := newFence(t)
	reason := errors.New("lease expired")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	for what, err := range map[string]error{
		"claim": f.Claim(ctx, []fence.Stamp{at(17, 1, "a")}),
		"write": push(ctx, f, at(17, 1, "a"), "x"),
	} {
		if !errors.Is(err, context.Canceled) || !errors.Is(err, reason) || !errors.Is(err, redisfence.ErrNotRun) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	if n := c.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}
