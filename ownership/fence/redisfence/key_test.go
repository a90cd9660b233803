package redisfence_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/redisfence"
)

func TestKeysAreReadable(t *testing.T) {
	f := redisfence.New(nil)
	for _, c := range []struct {
		key  fence.Key
		want string
	}{
		{fence.Key{Keyspace: "orders", Partition: 17}, "leasehold:fence:{orders/17}"},
		{fence.Key{Resource: "the printer"}, "leasehold:fence:{resource:the%20printer}"},
		{fence.Key{Resource: "ünï/→"}, "leasehold:fence:{resource:ünï/→}"},
		{fence.Key{Keyspace: "a{b}c", Partition: 1}, "leasehold:fence:{a%7Bb%7Dc/1}"},
	} {
		if got := f.MarkKey(c.key); got != c.want {
			t.Errorf("%s: %s, want %s", c.key, got, c.want)
		}
	}
	if got := redisfence.Under(fence.Key{Keyspace: "orders", Partition: 17}, "journal"); got != "{orders/17}:journal" {
		t.Error(got)
	}
	if got := redisfence.New(nil, redisfence.WithPrefix("x{y}:")).MarkKey(fence.Key{Keyspace: "k"}); got != "x%7By%7D:{k/0}" {
		t.Error(got)
	}
}

// hashTag is the rule of Redis Cluster: what is between the first { and the
// first } after it, if that is not empty.
func hashTag(key string) string {
	_, rest, ok := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); ok && closed && tag != "" {
		return tag
	}
	return key
}

// Whatever a name holds: mark and data have one hash tag, and two keys never
// share one, nor a mark.
func TestNoNameBreaksTheTag(t *testing.T) {
	name := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("{}%:/a17 \n\u00fc")), 1, 12, -1),
		rapid.SampledFrom([]string{"resource:x", "x/17", "a/1", "%7B", "{}", "}"}),
	)
	key := rapid.Custom(func(t *rapid.T) fence.Key {
		if rapid.Bool().Draw(t, "is a resource") {
			return fence.Key{Resource: name.Draw(t, "resource")}
		}
		return fence.Key{Keyspace: name.Draw(t, "keyspace"), Partition: rapid.SampledFrom([]uint32{0, 1, 17, 1<<32 - 1}).Draw(t, "partition")}
	})
	f := redisfence.New(nil, redisfence.WithPrefix("{p}:"))
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		data := string(redisfence.Under(a, name.Draw(t, "data")))
		if tag := hashTag(f.MarkKey(a)); hashTag(data) != tag || "{"+tag+"}" != redisfence.Tag(a) {
			t.Fatalf("mark %q, data %q: not one tag", f.MarkKey(a), data)
		}
		if a != b && (f.MarkKey(a) == f.MarkKey(b) || redisfence.Tag(a) == redisfence.Tag(b)) {
			t.Fatalf("%+v and %+v share %q", a, b, f.MarkKey(a))
		}
	})
}

// Each finds the marks of its own prefix, names as they were, and nothing else.
func TestEachFindsItsOwnMarks(t *testing.T) {
	f, c := newFence(t, redisfence.WithPrefix("[ab]*?:"))
	ctx := t.Context()
	var want []string
	var stamps []fence.Stamp
	for _, k := range []fence.Key{
		{Keyspace: "orders", Partition: 1<<32 - 1}, {Keyspace: "a/1", Partition: 2}, {Keyspace: "{}%41", Partition: 0},
		{Resource: "the printer"}, {Resource: "orders/1"}, {Resource: "%zz%"}, {Resource: "resource:x"}, {Resource: "ünï"},
	} {
		want = append(want, k.String())
		stamps = append(stamps, fence.Stamp{Keyspace: "orders", Token: 7, Owner: "a", Resource: k.Resource})
		if k.Resource == "" {
			stamps[len(stamps)-1].Keyspace, stamps[len(stamps)-1].Partition = k.Keyspace, k.Partition
		}
	}
	if err := f.Claim(ctx, stamps); err != nil {
		t.Fatal(err)
	}
	for _, foreign := range []string{"a*?:{x/1}", "[ab]*?:x/1", "[ab]*?:{x}", "[ab]*?:{x/y}", "[ab]*?:{x/01}", "[ab]*?:{/1}", "[ab]*?:{x/1}z", "[ab]*?:{resource:}", "[ab]*?:{x/4294967296}"} {
		c.HSet(ctx, foreign, "token", "1", "owner", "x")
	}
	var got []string
	if err := f.Each(ctx, func(k fence.Key, m fence.Mark) error {
		got = append(got, k.String())
		if m != (fence.Mark{Token: 7, Owner: "a"}) {
			t.Errorf("%s: %+v", k, m)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
