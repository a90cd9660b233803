package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc"
)

// stream is one Attach call on a connection of its own, so that a connection
// that has gone silent is left together with its stream.
type stream struct {
	addr   string
	conn   *grpc.ClientConn
	call   grpc.BidiStreamingClient[leaseholdv1.AttachRequest, leaseholdv1.AttachResponse]
	cancel context.CancelFunc
	out    *mailbox[*leaseholdv1.AttachRequest]
	ended  chan struct{} // closed when the reader has returned
	bye    chan struct{} // closed to end it orderly
}

// attach opens a stream to a server with its first message and waits for the
// answer. sent is read before the message can have left, and is zero when it
// certainly has not. The stream lives as long as life; ctx is for the attempt.
func attach(ctx, life context.Context, cl *client.Client, addr string, first *leaseholdv1.AttachRequest, wait time.Duration,
	read func() reading) (st *stream, answer *leaseholdv1.AttachResponse, sent reading, err error) {
	conn, err := cl.Open(addr)
	if err != nil {
		return nil, nil, reading{}, err
	}
	life, cancel := context.WithCancel(life)
	defer context.AfterFunc(ctx, cancel)()
	fail := func(err error) (*stream, *leaseholdv1.AttachResponse, reading, error) {
		cancel()
		_ = conn.Close() // nothing is on it any more
		return nil, nil, sent, err
	}
	timer := time.AfterFunc(wait, cancel)
	defer timer.Stop()
	at := read()
	call, err := leaseholdv1.NewSessionServiceClient(conn).Attach(life)
	if err != nil {
		return fail(err)
	}
	sent = at
	// An error of Send is io.EOF; Recv has the reason.
	_ = call.Send(first)
	answer, err = call.Recv()
	if err != nil {
		if life.Err() != nil {
			err = fmt.Errorf("attach at %s: no answer in %v: %w", addr, wait, err)
		}
		return fail(err)
	}
	if !timer.Stop() {
		return fail(fmt.Errorf("attach at %s: no answer in %v", addr, wait))
	}
	return &stream{
		addr:   addr,
		conn:   conn,
		call:   call,
		cancel: cancel,
		out:    newMailbox[*leaseholdv1.AttachRequest](),
		ended:  make(chan struct{}),
		bye:    make(chan struct{}),
	}, answer, sent, nil
}

// close cuts the stream; its goroutines end by that.
func (st *stream) close() { st.cancel() }

// discard cuts a stream whose goroutines were never started.
func (st *stream) discard() {
	st.cancel()
	_ = st.conn.Close() // its only call is over
}

// read passes on what arrives until the stream ends.
func (st *stream) read(got func(*leaseholdv1.AttachResponse), over func(error)) {
	defer close(st.ended)
	for {
		m, err := st.call.Recv()
		if err != nil {
			st.cancel()
			_ = st.conn.Close() // its only call is over
			over(err)
			return
		}
		got(m)
	}
}

// write sends what is put into out. A stream that cannot take more blocks only
// this goroutine.
func (st *stream) write() {
	for {
		select {
		case <-st.out.signal:
			if !st.flush() {
				return
			}
		case <-st.bye:
			st.flush()
			_ = st.call.CloseSend() // always nil
			return
		case <-st.call.Context().Done():
			return
		}
	}
}

func (st *stream) flush() bool {
	for _, m := range st.out.take(nil) {
		if st.call.Send(m) != nil {
			return false // the reader hears why
		}
	}
	return true
}

// goodbye ends the stream after all that waits has been sent.
func (st *stream) goodbye(most time.Duration) {
	close(st.bye)
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-st.ended:
	case <-timer.C:
		st.close()
		<-st.ended
	}
}
