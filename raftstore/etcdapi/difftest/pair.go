package difftest

import (
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// watchPair is the same watch stream to both sides.
type watchPair struct {
	streams [2]*watchStream
	at      int
	watches map[int64]*watchState // that both have
}

// watchState is one watch of both.
type watchState struct {
	req    *pb.WatchCreateRequest
	last   int64 // revision of its last event that was compared
	doomed bool  // it starts below the compaction and will be told so
}

func openPair(a, b *Side, at int) (*watchPair, error) {
	p := &watchPair{at: at, watches: map[int64]*watchState{}}
	for i, s := range []*Side{a, b} {
		w, err := s.openWatch(at)
		if err != nil {
			p.close()
			return nil, err
		}
		p.streams[i] = w
	}
	return p, nil
}

func (p *watchPair) close() {
	for _, w := range p.streams {
		if w != nil {
			w.close()
		}
	}
}

// both does the same to both streams at once.
func (p *watchPair) both(do func(*watchStream) error) error {
	done := make(chan error, 1)
	go func() { done <- do(p.streams[1]) }()
	err := do(p.streams[0])
	return errors.Join(err, <-done)
}

// create creates a watch on both and compares the answers.
func (p *watchPair) create(req *pb.WatchCreateRequest, compacted int64) error {
	var got [2]*pb.WatchResponse
	err := p.both(func(w *watchStream) (err error) {
		r, err := w.create(req)
		if w == p.streams[0] {
			got[0] = r
		} else {
			got[1] = r
		}
		return err
	})
	if err != nil {
		return err
	}
	if !proto.Equal(got[0], got[1]) {
		return p.differ("creation of a watch", got[0], got[1])
	}
	if !got[0].Canceled {
		p.watches[got[0].WatchId] = &watchState{req: req, doomed: req.StartRevision > 0 && req.StartRevision < compacted}
	}
	return nil
}

func (p *watchPair) differ(what string, a, b proto.Message) error {
	return fmt.Errorf("%s differs\n  %-9s %s\n  %-9s %s", what, p.streams[0].side.Name, shorten(show(a), 2000), p.streams[1].side.Name, shorten(show(b), 2000))
}

// waits reports whether a watch of the stream begins after revision: no mark
// will come then.
func (p *watchPair) waits(revision int64) bool {
	for _, w := range p.watches {
		if w.req.StartRevision > revision {
			return true
		}
	}
	return false
}

func (p *watchPair) unsure() bool {
	return p.streams[0].unsure() || p.streams[1].unsure()
}

// String lists the watches.
func (p *watchPair) String() string {
	text := ""
	for _, id := range p.ids() {
		text += fmt.Sprintf("  watch %d: %s\n", id, show(p.watches[id].req))
	}
	return text
}

// ids of the watches in order.
func (p *watchPair) ids() []int64 {
	ids := make([]int64, 0, len(p.watches))
	for id := range p.watches {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// settle waits until all events up to revision have come and compares them.
// It returns how many there were.
func (p *watchPair) settle(revision int64) (events int, err error) {
	living := false
	for _, id := range p.ids() {
		if p.watches[id].doomed {
			err := p.both(func(w *watchStream) error {
				return w.until("end of a compacted watch", func() bool { return w.logs[id].end != nil })
			})
			if err == nil {
				err = p.bury(id)
			}
			if err != nil {
				return 0, fmt.Errorf("watch %d (%s): %w", id, show(p.watches[id].req), err)
			}
		} else {
			living = true
		}
	}
	if living && !p.waits(revision) {
		if err := p.both(func(w *watchStream) error { return w.sync(revision) }); err != nil {
			return 0, fmt.Errorf("%w\n%s", err, p)
		}
	} else if living {
		return 0, nil
	}
	for _, id := range p.ids() {
		n, err := p.compare(id)
		if err != nil {
			return events, fmt.Errorf("watch %d (%s): %w", id, show(p.watches[id].req), err)
		}
		events += n
	}
	return events, nil
}

// compare compares what one watch has received on both sides, and forgets it.
func (p *watchPair) compare(id int64) (int, error) {
	var logs [2]watchLog
	for i, w := range p.streams {
		w.mu.Lock()
		logs[i] = *w.logs[id]
		w.logs[id].events = nil
		w.mu.Unlock()
	}
	a, b := logs[0], logs[1]
	for i := range min(len(a.events), len(b.events)) {
		if !proto.Equal(a.events[i], b.events[i]) {
			return 0, p.differ(fmt.Sprintf("event %d of %d", i+1, len(a.events)), a.events[i], b.events[i])
		}
	}
	if len(a.events) != len(b.events) {
		return 0, fmt.Errorf("%s sent %d events, %s %d\n%s", p.streams[0].side.Name, len(a.events), p.streams[1].side.Name, len(b.events), surplus(a.events, b.events))
	}
	if !proto.Equal(a.end, b.end) {
		return 0, p.differ("end of a watch", a.end, b.end)
	}
	if len(a.events) > 0 {
		p.watches[id].last = a.events[len(a.events)-1].Kv.ModRevision
	}
	if a.end != nil {
		delete(p.watches, id)
	}
	return len(a.events), nil
}

// surplus shows the first event that one of the lists has beyond the other.
func surplus[E proto.Message](a, b []E) string {
	if len(a) < len(b) {
		a, b = b, a
	}
	return "  one beyond: " + shorten(show(a[len(b)]), 1000)
}

// bury cancels a watch that has ended: etcd sends no marks on a stream with
// one that compaction has ended, until it is cancelled, too. Its answer, which
// comes from etcd alone, is not waited for.
func (p *watchPair) bury(id int64) error {
	return p.both(func(w *watchStream) error { return w.ask(func() error { return w.sendCancel(id) }) })
}

// stop cancels a watch on both.
func (p *watchPair) stop(id int64) (int, error) {
	if err := p.both(func(w *watchStream) error { return w.stop(id) }); err != nil {
		return 0, err
	}
	return p.compare(id)
}

// resume is what asks for the rest of a watch on another stream.
func (w *watchState) resume() *pb.WatchCreateRequest {
	req := proto.Clone(w.req).(*pb.WatchCreateRequest)
	req.WatchId = 0
	if w.last > 0 {
		req.StartRevision = w.last + 1
	}
	return req
}
