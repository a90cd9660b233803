package difftest

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// watchLog is what one watch of one side has received.
type watchLog struct {
	events []*mvccpb.Event
	end    *pb.WatchResponse // that cancelled it
	open   bool              // the last message was a fragment that goes on
	last   int64             // revision of the last whole message: nothing at or below may follow
	start  int64
	marked int64 // every event up to here has come
	ahead  int   // marks that may have been asked for before the watch was created: they do not speak of it
}

// mark notes a mark of progress of the stream.
func (l *watchLog) mark(revision int64) {
	if l.ahead > 0 {
		l.ahead--
	} else {
		l.marked = revision
	}
}

// take adds a message and checks what holds for each by itself: events come in
// order, those of a revision together, and the header is at or above them.
func (l *watchLog) take(r *pb.WatchResponse) error {
	if len(r.Events) == 0 && !r.Canceled {
		return nil // a mark of this watch alone
	}
	if r.Canceled {
		if l.end == nil {
			l.end = r
		}
		return nil
	}
	high := int64(0)
	for i, e := range r.Events {
		rev := e.Kv.ModRevision
		switch {
		case rev <= l.marked:
			return fmt.Errorf("event of revision %d after the mark %d", rev, l.marked)
		case rev < l.start:
			return fmt.Errorf("event of revision %d, but the watch starts at %d", rev, l.start)
		case rev <= l.last && !(l.open && rev == l.last):
			return fmt.Errorf("event of revision %d after a message that ended with %d", rev, l.last)
		case rev < high:
			return fmt.Errorf("event %d of a message has revision %d after %d", i, rev, high)
		case rev > r.Header.Revision:
			return fmt.Errorf("event of revision %d in a message of revision %d", rev, r.Header.Revision)
		}
		high = rev
	}
	l.events = append(l.events, r.Events...)
	l.last, l.open = high, r.Fragment
	return nil
}
