package ring

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// check fails unless r is a placement: sorted distinct members, an owner for
// each partition if anybody takes part, nobody above the cap.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, r *Ring, partitions uint32, part int, load float64) {
	t.Helper()
	if !slices.IsSorted(r.Members()) {
		t.Fatalf("members are not sorted: %v", r.Members())
	}
	if uint32(len(r.Owners())) != partitions {
		t.Fatalf("%d owners for %d partitions", len(r.Owners()), partitions)
	}
	held := make([]int, len(r.Members()))
	for p, o := range r.Owners() {
		if o != r.Owner(uint32(p)) {
			t.Fatalf("Owner(%d) is %d, Owners says %d", p, r.Owner(uint32(p)), o)
		}
		if o == None {
			if part > 0 {
				t.Fatalf("partition %d of %d has no owner among %d members", p, partitions, part)
			}
			continue
		}
		if part == 0 || o < 0 || int(o) >= len(held) {
			t.Fatalf("partition %d belongs to member %d of %d, %d take part", p, o, len(held), part)
		}
		held[o]++
	}
	if part == 0 {
		return
	}
	limit := int(float64(partitions)/float64(part)*load) + 1
	if most := slices.Max(held); most > limit {
		t.Fatalf("a member has %d of %d partitions among %d members, cap is %d", most, partitions, part, limit)
	}
}

// O-27: the library has divided by zero, run out of room and lost members on
// sizes like these.
func TestRingCornerSizesMustNotPanic(t *testing.T) {
	for _, partitions := range []uint32{1, 2, 3, 5, 7, 23, 271} {
		for _, replicas := range []int{1, 20} {
			for _, load := range []float64{1.0, 1.01, 1.25} {
				t.Run(fmt.Sprintf("P=%d/RF=%d/load=%v", partitions, replicas, load), func(t *testing.T) {
					upAndDown(t, partitions, settings{replicas: replicas, load: load})
				})
			}
		}
	}
}

// upAndDown goes from 0 to 50 members, down to 0 and up again, one by one, and
// compares each step with a fresh ring.
func upAndDown(t *testing.T, partitions uint32, s settings) {
	var steps []int
	for n := range 51 {
		steps = append(steps, n)
	}
	for n := 49; n >= 0; n-- {
		steps = append(steps, n)
	}
	steps = append(steps, 1, 2, 3)
	names := memberNames(50)
	slices.Sort(names)
	var last *cacheEntry
	for _, n := range steps {
		part := clip(names[:n], partitions)
		entry := &cacheEntry{part: part}
		if last != nil && last.arrangement.lib != nil && n > 0 {
			remove, add := difference(last.part, part)
			entry.arrangement = last.arrangement
			if err := entry.arrangement.change(remove, add); err != nil {
				t.Fatalf("step to %d members: %v", n, err)
			}
		} else {
			a, err := arrange(part, partitions, s)
			if err != nil {
				t.Fatalf("start with %d members: %v", n, err)
			}
			entry.arrangement = a
		}
		r, err := entry.arrangement.ring(names[:n])
		if err != nil {
			t.Fatal(err)
		}
		check(t, r, partitions, len(part), s.load)
		fresh, err := arrange(part, partitions, s)
		if err != nil {
			t.Fatalf("fresh with %d members: %v", n, err)
		}
		want, err := fresh.ring(names[:n])
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Owners(), want.Owners()) {
			t.Fatalf("%d members: step by step and fresh differ", n)
		}
		entry.ring, last = r, entry
	}
}

func TestWeightZeroOwnsNothing(t *testing.T) {
	for _, c := range []struct {
		weights []uint32
		part    int
	}{
		{[]uint32{1, 0}, 1}, {[]uint32{0, 0}, 0}, {[]uint32{1, 1000}, 2}, {[]uint32{}, 0},
	} {
		var members []Member
		for i, w := range c.weights {
			members = append(members, Member{Name: fmt.Sprintf("w%d", i), Weight: w})
		}
		for _, partitions := range []uint32{1, 2, 3, 5, 7, 23, 271} {
			r, err := NewWeighted(members, partitions)
			if err != nil {
				t.Fatal(err)
			}
			check(t, r, partitions, min(c.part, int(partitions)), defaults.load)
			for _, o := range r.Owners() {
				if o != None && c.weights[o] == 0 {
					t.Fatalf("weights %v: a member of weight 0 owns a partition", c.weights)
				}
			}
			if len(r.Members()) != len(c.weights) {
				t.Fatalf("weights %v: members are %v", c.weights, r.Members())
			}
		}
	}
}

// The placement may depend on the set of members alone.
func TestOrderOfMembersDoesNotMatter(t *testing.T) {
	names := memberNames(40) // worker-1 and worker-11 among them
	want, err := New(names, 4096)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		shuffled := slices.Concat(names, names[:7]) // repetitions too
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		got, err := New(shuffled, 4096)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Owners(), want.Owners()) || !slices.Equal(got.Members(), want.Members()) {
			t.Fatal("another order gives another placement")
		}
	}
}

// Whatever was asked before, the cache answers like New.
func TestCacheEqualsFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Cache
		// Names that end in digits, contain the terminator, or are one another's
		// beginning: the pairs that have collided in the library.
		names := []string{"w", "w1", "w11", "w111", "w/", "w/1", "1", "1:w", "1:1", "a b", "é", "\x00", "\xff", "/", "//"}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			partitions := rapid.SampledFrom([]uint32{1, 2, 7, 64, 271}).Draw(t, "partitions")
			members := rapid.SliceOf(rapid.SampledFrom(names)).Draw(t, "members")
			got, err := c.Get(members, partitions)
			if err != nil {
				t.Fatal(err)
			}
			want, err := New(members, partitions)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Owners(), want.Owners()) || !slices.Equal(got.Members(), want.Members()) {
				t.Fatalf("cache and fresh differ for %q over %d", members, partitions)
			}
			check(t, got, partitions, min(len(got.Members()), int(partitions)), defaults.load)
		}
	})
}

// Rings that were handed out do not change when the cache moves on.
func TestCacheLeavesOldRingsAlone(t *testing.T) {
	var c Cache
	names := memberNames(20)
	first, err := c.Get(names[:10], 271)
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(first.Owners())
	again, err := c.Get(names[:10], 271)
	if err != nil || again != first {
		t.Fatalf("the same question was computed again (%v)", err)
	}
	for n := 11; n <= 20; n++ {
		if _, err := c.Get(names[:n], 271); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(first.Owners(), before) || len(first.Members()) != 10 {
		t.Fatal("an old ring has changed")
	}
}

// The library has followed nil pointers on duplicates; here one is planted.
func TestPanicOfTheLibraryBecomesAnError(t *testing.T) {
	a, err := arrange(memberNames(3), 64, defaults)
	if err != nil {
		t.Fatal(err)
	}
	a.points["gone"] = nil
	if err := a.change([]string{"gone"}, nil); !errors.Is(err, ErrLibrary) {
		t.Fatalf("got %v, want ErrLibrary", err)
	}
	if _, err := arrange(memberNames(3), 64, settings{replicas: 1, load: 0.5}); !errors.Is(err, ErrLibrary) {
		t.Fatalf("no room for all partitions: got %v, want ErrLibrary", err)
	}
}

func TestCacheStartsAnewAfterAnError(t *testing.T) {
	var c Cache
	names := memberNames(70)
	if _, err := c.Get(names[:69], 271); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.entries[271].arrangement.points {
		delete(c.entries[271].arrangement.points, p.name[:len(p.name)-1]) // damage it
	}
	if _, err := c.Get(names[1:69], 271); !errors.Is(err, ErrLibrary) {
		t.Fatalf("got %v, want ErrLibrary", err)
	}
	got, err := c.Get(names[1:69], 271)
	if err != nil {
		t.Fatal(err)
	}
	want, err := New(names[1:69], 271)
	if err != nil || !slices.Equal(got.Owners(), want.Owners()) {
		t.Fatalf("after an error the cache differs from fresh (%v)", err)
	}
}

// One worker more or less may not mean a new start with a thousand.
func TestCacheStepsInsteadOfStartingAnew(t *testing.T) {
	var c Cache
	names := memberNames(30)
	if _, err := c.Get(names[:29], 271); err != nil {
		t.Fatal(err)
	}
	before := c.entries[271].arrangement
	if _, err := c.Get(names, 271); err != nil {
		t.Fatal(err)
	}
	if c.entries[271].arrangement != before {
		t.Fatal("a join started anew")
	}
	if _, err := c.Get(names[1:], 271); err != nil {
		t.Fatal(err)
	}
	if c.entries[271].arrangement != before {
		t.Fatal("a leave started anew")
	}
	c.Forget(271)
	if _, err := c.Get(names[1:], 271); err != nil {
		t.Fatal(err)
	}
	if c.entries[271].arrangement == before {
		t.Fatal("a forgotten arrangement was used")
	}
}

func TestMoreMembersThanPartitions(t *testing.T) {
	names := memberNames(50)
	r, err := New(names, 7)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Members()) != 50 {
		t.Fatalf("%d members listed, want all 50", len(r.Members()))
	}
	check(t, r, 7, 7, defaults.load)
	for _, o := range r.Owners() {
		if o >= 7 {
			t.Fatalf("member %d takes part, want only the first seven", o)
		}
	}
}

func TestBadInputIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		members    []string
		partitions uint32
		want       string
	}{
		"no partitions":       {[]string{"a"}, 0, "partitions is 0, must be 1 to 1048576"},
		"too many partitions": {[]string{"a"}, MaxPartitions + 1, "partitions is 1048577"},
		"empty name":          {[]string{"a", ""}, 1, "member name is empty"},
		"long name":           {[]string{strings.Repeat("x", MaxNameLen+1)}, 1, "has 257 bytes, must have 1 to 256"},
	} {
		t.Run(name, func(t *testing.T) {
			var cache Cache
			_, err := New(c.members, c.partitions)
			_, cacheErr := cache.Get(c.members, c.partitions)
			for _, err := range []error{err, cacheErr} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want it to say %q", err, c.want)
				}
			}
		})
	}
}

func TestOwnerOutOfRangeIsNobody(t *testing.T) {
	r, err := New([]string{"a"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if r.Owner(2) != 0 || r.Owner(3) != None || r.Owner(1<<31) != None {
		t.Fatalf("owners: %d %d %d", r.Owner(2), r.Owner(3), r.Owner(1<<31))
	}
}
