package etcdapi

import (
	"bytes"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/leasehold-dev/leasehold/raftstore/mvcc"
)

// watchStory is what one client saw of one watch, over all streams on which it was
// carried on.
type watchStory struct {
	want  spec
	start int64 // the first revision it asked for; 0: from the first answer on
	seen  []*pb.WatchResponse
}

// checkWatch says what is wrong with a story, given everything that happened up to
// a revision that the watch was to reach (0: it need not reach any). The rules: the
// first message of each stream says that the watch is created; events are those that
// happened, in order, none twice, none missing; the events of a revision come in one
// message or its fragments; headers are at or above their events; after a mark for a
// revision nothing at or below it comes; only compaction cancels.
func checkWatch(story *watchStory, happened []mvcc.Event, reach int64) error {
	c := watchChecker{story: story, next: story.start}
	for _, e := range happened {
		if story.want.wants(&e) {
			c.events = append(c.events, e)
		}
	}
	for n, m := range story.seen {
		if err := c.message(m); err != nil {
			return fmt.Errorf("message %d of %d: %w", n+1, len(story.seen), err)
		}
	}
	if c.cancelled || reach == 0 {
		return nil
	}
	if e := c.due(); e != nil && e.Revision() <= reach {
		return fmt.Errorf("the event of %q at %d never came", e.KV.Key, e.Revision())
	}
	return nil
}

// wants reports whether a watcher of sp is to be told of e.
func (sp *spec) wants(e *mvcc.Event) bool {
	key := string(e.KV.Key)
	in := key == sp.key
	if sp.ranged {
		in = key >= sp.key && (sp.end == "" || key < sp.end)
	}
	return in && !(e.Delete && sp.noDelete) && !(!e.Delete && sp.noPut)
}

type watchChecker struct {
	story     *watchStory
	events    []mvcc.Event // that the watch is to tell, less those that it has told
	next      int64        // nothing below it may come
	created   bool
	cancelled bool
	open      bool  // the last message was a fragment that others follow
	last      int64 // revision of the last event
}

func (c *watchChecker) message(m *pb.WatchResponse) error {
	if c.cancelled {
		return fmt.Errorf("comes after the watch was cancelled")
	}
	if m.Created {
		return c.creation(m)
	}
	if !c.created {
		return fmt.Errorf("comes before the watch was created")
	}
	if m.Canceled {
		if c.cancelled = true; m.CompactRevision == 0 {
			return fmt.Errorf("cancelled, but not as compacted: %q", m.CancelReason)
		}
		if c.next >= m.CompactRevision {
			return fmt.Errorf("cancelled as compacted at %d, but %d comes next", m.CompactRevision, c.next)
		}
		return nil
	}
	if len(m.Events) == 0 {
		return c.mark(m.Header.Revision)
	}
	for i, e := range m.Events {
		if err := c.event(e, i == 0); err != nil {
			return err
		}
		if m.Header.Revision < e.Kv.ModRevision {
			return fmt.Errorf("header has revision %d, event %d", m.Header.Revision, e.Kv.ModRevision)
		}
	}
	if c.open = m.Fragment; !c.open {
		return c.mark(m.Header.Revision)
	}
	return nil
}

func (c *watchChecker) creation(m *pb.WatchResponse) error {
	if c.created = true; m.Canceled {
		return fmt.Errorf("refused: %s", m.CancelReason)
	}
	if c.next == 0 {
		c.next = m.Header.Revision + 1
	}
	c.open, c.last = false, 0
	return nil
}

// due is the next event that is to come.
func (c *watchChecker) due() *mvcc.Event {
	for len(c.events) > 0 && c.events[0].Revision() < c.next {
		c.events = c.events[1:]
	}
	if len(c.events) == 0 {
		return nil
	}
	return &c.events[0]
}

func (c *watchChecker) event(e *mvccpb.Event, first bool) error {
	due := c.due()
	if due == nil || due.Revision() != e.Kv.ModRevision || !bytes.Equal(due.KV.Key, e.Kv.Key) {
		return fmt.Errorf("event of %q at %d, due is %s", e.Kv.Key, e.Kv.ModRevision, describe(due))
	}
	if first && !c.open && e.Kv.ModRevision == c.last {
		return fmt.Errorf("revision %d comes in two messages", c.last)
	}
	if err := sameEvent(due, e, c.story.want.prev); err != nil {
		return err
	}
	c.events, c.last = c.events[1:], e.Kv.ModRevision
	return nil
}

func describe(e *mvcc.Event) string {
	if e == nil {
		return "none"
	}
	return fmt.Sprintf("%q at %d", e.KV.Key, e.Revision())
}

func sameEvent(want *mvcc.Event, got *mvccpb.Event, prev bool) error {
	if (got.Type == mvccpb.Event_DELETE) != want.Delete {
		return fmt.Errorf("event of %q at %d has type %s", got.Kv.Key, got.Kv.ModRevision, got.Type)
	}
	if !want.Delete && !sameKV(want.KV, got.Kv) {
		return fmt.Errorf("event has %v, want %v", got.Kv, want.KV)
	}
	if want.Delete && (len(got.Kv.Value) > 0 || got.Kv.Version != 0 || got.Kv.CreateRevision != 0 || got.Kv.Lease != 0) {
		return fmt.Errorf("deletion has more than key and revision: %v", got.Kv)
	}
	if !prev && got.PrevKv != nil {
		return fmt.Errorf("event of %q at %d has a previous pair that nobody asked for", got.Kv.Key, got.Kv.ModRevision)
	}
	// Compaction may have taken it: then there is none.
	if prev && got.PrevKv != nil && (want.Prev == nil || !sameKV(want.Prev, got.PrevKv)) {
		return fmt.Errorf("previous pair is %v, want %v", got.PrevKv, want.Prev)
	}
	return nil
}

func sameKV(a *mvcc.KeyValue, b *mvccpb.KeyValue) bool {
	return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) && a.CreateRevision == b.CreateRevision &&
		a.ModRevision == b.ModRevision && a.Version == b.Version && a.Lease == b.Lease
}

// mark notes that all up to a revision has been told.
func (c *watchChecker) mark(revision int64) error {
	if e := c.due(); e != nil && e.Revision() <= revision {
		return fmt.Errorf("says that all up to %d is told, but %s is due", revision, describe(e))
	}
	c.next = max(c.next, revision+1)
	return nil
}
