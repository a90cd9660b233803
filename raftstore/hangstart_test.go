package raftstore

import (
	"context"
	"errors"
	"testing"
	"time"
)

// hangingTerm is a log that stores no term before it is let.
type hangingTerm struct {
	LogStore
	reached chan struct{}
	let     chan struct{}
}

func (h hangingTerm) SetUint64(key []byte, val uint64) error {
	select {
	case h.reached <- struct{}{}:
	default: // it is known already
	}
	<-h.let
	return h.LogStore.SetUint64(key, val)
}

// A disk that hangs while Raft starts must not make Status wait: readiness and
// health ask for it.
func TestStatusAnswersWhileTheDiskHangsAtTheStart(t *testing.T) {
	reached, let := make(chan struct{}, 1), make(chan struct{})
	s, err := New(Config{
		ServerID: "s1", Dir: t.TempDir(), RaftAddr: "127.0.0.1:0",
		WrapLog: func(l LogStore) LogStore { return hangingTerm{l, reached, let} },
		Lead:    func(ctx context.Context, _ *Lead) error { <-ctx.Done(); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-reached
	answered := make(chan Status, 1)
	go func() { answered <- s.Status() }()
	select {
	case st := <-answered:
		if st.State != "stopped" {
			t.Errorf("a store that is starting says %q", st.State)
		}
	case <-time.After(30 * time.Second):
		t.Error("Status waits for the disk")
	}
	close(let)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestDiskThatHangsForGoodAtTheStartEndsRun: a process that waits for a disk
// for ever is of no use to whoever could start it elsewhere.
func TestDiskThatHangsForGoodAtTheStartEndsRun(t *testing.T) {
	reached, let := make(chan struct{}, 1), make(chan struct{})
	s, err := New(Config{
		ServerID: "s1", Dir: t.TempDir(), RaftAddr: "127.0.0.1:0", ElectionTimeout: 50 * time.Millisecond,
		HangBound: 500 * time.Millisecond, HangExit: 1500 * time.Millisecond, // a disk that is slow is not to be taken for one that hangs
		WrapLog: func(l LogStore) LogStore { return hangingTerm{l, reached, let} },
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	<-reached
	select {
	case err := <-done:
		if !errors.Is(err, ErrDiskHangs) {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Run waits for the disk")
	}
	close(let) // the kernel lets go of the goroutine that was left behind
	for unlocked := false; !unlocked; {
		again, err := New(Config{ServerID: "s1", Dir: s.cfg.Dir, RaftAddr: "127.0.0.1:0"})
		if unlocked = err == nil; unlocked {
			_ = again.Close()
			continue
		}
		<-time.After(10 * time.Millisecond)
	}
}
