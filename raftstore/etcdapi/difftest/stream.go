package difftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// watchStream is one watch stream of one side, read by a goroutine of its own.
type watchStream struct {
	side   *Side
	grpc   pb.Watch_WatchClient
	cancel context.CancelFunc
	ended  chan struct{}

	mu      sync.Mutex
	news    chan struct{} // closed and replaced when anything has come
	created []*pb.WatchResponse
	logs    map[int64]*watchLog
	marked  int64
	asked   int     // for marks and not answered: etcd drops the question while any watch lags
	starts  []int64 // of the creations that are not yet answered
	err     error
}

// openWatch opens a stream to one server.
func (s *Side) openWatch(at int) (*watchStream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := pb.NewWatchClient(s.conns[at%len(s.conns)]).Watch(ctx)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("%s: open watch stream: %w", s.Name, err)
	}
	w := &watchStream{side: s, grpc: stream, cancel: cancel, ended: make(chan struct{}), news: make(chan struct{}), logs: map[int64]*watchLog{}}
	go w.read()
	return w, nil
}

// close ends the stream and waits for its reader.
func (w *watchStream) close() {
	w.cancel()
	<-w.ended
}

func (w *watchStream) read() {
	defer close(w.ended)
	for {
		resp, err := w.grpc.Recv()
		if err == nil && w.side.doctor != nil {
			err = w.side.doctor(methodWatch, resp, nil)
		}
		w.mu.Lock()
		if err == nil {
			err = w.take(resp)
		}
		if err != nil && w.err == nil {
			w.err = fmt.Errorf("%s: watch: %w", w.side.Name, err)
		}
		close(w.news)
		w.news = make(chan struct{})
		w.mu.Unlock()
		if err != nil {
			w.cancel()
			return
		}
	}
}

// methodWatch names the answers of watch streams to a Doctor.
const methodWatch = "/etcdserverpb.Watch/Watch"

func (w *watchStream) take(r *pb.WatchResponse) error {
	revision := r.GetHeader().GetRevision()
	if err := w.side.check.header(r.Header); err != nil {
		return err
	}
	switch {
	case r.Created:
		w.created = append(w.created, r)
		if !r.Canceled {
			if len(w.starts) == 0 {
				return errors.New("a creation that nobody asked for")
			}
			w.logs[r.WatchId] = &watchLog{start: w.starts[0], ahead: w.asked}
		}
		if len(w.starts) > 0 {
			w.starts = w.starts[1:]
		}
		return nil
	case r.WatchId == -1:
		if len(r.Events) > 0 || r.Canceled || revision < w.marked {
			return fmt.Errorf("no mark of progress after %d: %s", w.marked, show(r))
		}
		w.marked = revision
		w.asked = max(0, w.asked-1)
		for _, log := range w.logs {
			log.mark(revision)
		}
		return nil
	}
	log := w.logs[r.WatchId]
	if log == nil {
		return fmt.Errorf("message for watch %d, which was not created: %s", r.WatchId, shorten(show(r), 500))
	}
	if err := log.take(r); err != nil {
		return fmt.Errorf("watch %d: %w: %s", r.WatchId, err, shorten(show(r), 2000))
	}
	return nil
}

// until waits until done holds, which is called with the stream locked.
func (w *watchStream) until(what string, done func() bool) error {
	return w.asking(what, 0, func() error { return nil }, done)
}

// asking waits until done holds and asks again and again meanwhile.
func (w *watchStream) asking(what string, every time.Duration, ask func() error, done func() bool) error {
	deadline := time.NewTimer(callTimeout)
	defer deadline.Stop()
	again := make(<-chan time.Time)
	if every > 0 {
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		again = ticker.C
	}
	if err := w.ask(ask); err != nil {
		return err
	}
	for {
		w.mu.Lock()
		ok, err, news := done(), w.err, w.news
		w.mu.Unlock()
		if err != nil {
			return err
		}
		if ok {
			return nil
		}
		select {
		case <-news:
		case <-again:
			if err := w.ask(ask); err != nil {
				return err
			}
		case <-deadline.C:
			return fmt.Errorf("%s: watch: no %s in %s", w.side.Name, what, callTimeout)
		}
	}
}

// ask sends; on a stream that has ended it tells why.
func (w *watchStream) ask(send func() error) error {
	err := send()
	if errors.Is(err, io.EOF) {
		<-w.ended
		return w.err
	}
	return err
}

// create asks for a watch and waits for the answer.
func (w *watchStream) create(req *pb.WatchCreateRequest) (*pb.WatchResponse, error) {
	w.mu.Lock()
	w.starts = append(w.starts, req.StartRevision)
	n := len(w.created)
	w.mu.Unlock()
	err := w.asking("answer to a creation", 0, func() error {
		return w.grpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: req}})
	}, func() bool { return len(w.created) > n })
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.created[n], nil
}

// stop cancels a watch and waits for its end.
func (w *watchStream) stop(id int64) error {
	return w.asking("answer to a cancellation", 0, func() error { return w.sendCancel(id) }, func() bool { return w.logs[id].end != nil })
}

func (w *watchStream) sendCancel(id int64) error {
	return w.grpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
}

// sync asks for progress until every watch is at revision: every event up to
// it has come then.
func (w *watchStream) sync(revision int64) error {
	w.mu.Lock()
	first := 1 // and as many as may be answers to questions of before
	for _, log := range w.logs {
		if log.end == nil {
			first = max(first, 1+log.ahead)
		}
	}
	w.mu.Unlock()
	err := w.asking(fmt.Sprintf("mark of revision %d", revision), 30*time.Millisecond, func() error {
		for ; first > 0; first-- {
			if err := w.sendProgress(); err != nil {
				return err
			}
		}
		first = 1
		return nil
	}, func() bool { return w.reached(revision) })
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.marked != revision {
		return fmt.Errorf("%s: watch: mark of revision %d, but it is %d", w.side.Name, w.marked, revision)
	}
	return nil
}

// reached reports whether all that live have been marked there.
func (w *watchStream) reached(revision int64) bool {
	for _, log := range w.logs {
		if log.end == nil && log.marked < revision {
			return false
		}
	}
	return true
}

func (w *watchStream) sendProgress() error {
	w.mu.Lock()
	w.asked++
	w.mu.Unlock()
	return w.grpc.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// unsure reports whether so many questions are open that another stream
// should be taken for new watches.
func (w *watchStream) unsure() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked > 3
}
