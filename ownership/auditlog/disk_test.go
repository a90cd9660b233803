package auditlog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// faulty is a file on a disk that can fail, tear and hang.
type faulty struct {
	*os.File
	fails atomic.Bool
	hang  chan struct{} // closed: it goes on; nil: it does not hang
}

func (f *faulty) Write(b []byte) (int, error) {
	if f.hang != nil {
		<-f.hang
	}
	if f.fails.Load() {
		n, _ := f.File.Write(b[:len(b)/2])
		return n, errors.New("no space left on device")
	}
	return f.File.Write(b)
}

func (f *faulty) opener(name string, flag int) (file, error) {
	var err error
	f.File, err = os.OpenFile(name, flag, 0o600)
	return f, err
}

func TestDiskThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		var disk faulty
		var lost atomic.Int64
		var log bytes.Buffer
		l := start(t, Config{Path: path, open: disk.opener, Lost: func(n int) { lost.Add(int64(n)) }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		l.Record(call(1))
		synctest.Wait()
		disk.fails.Store(true)
		for i := range 5 {
			l.Record(call(2 + i))
			synctest.Wait()
		}
		if lost.Load() != 5 {
			t.Errorf("%d entries counted as lost, want 5", lost.Load())
		}
		time.Sleep(10 * time.Second)
		disk.fails.Store(false)
		time.Sleep(2 * syncEvery) // by itself, without a call
		l.Record(call(9))
		stop(t, l)
		if rep, err := Verify("", path); err != nil || rep.Lines != 6 {
			t.Fatalf("%+v, %v", rep, err)
		}
		if got := lines(t, path); !strings.Contains(got[3], methodLost) || !strings.Contains(got[3], "5 entries could not be written") || !strings.Contains(got[4], "orders/9") {
			t.Errorf("the lines are %q", got)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 1 || strings.Count(log.String(), "written again") != 1 {
			t.Errorf("one failure is told of %d times:\n%s", n, log.String())
		}
	})
}

func TestDiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		var disk faulty
		var lost atomic.Int64
		l := start(t, Config{Path: path, open: disk.opener, Lost: func(n int) { lost.Add(int64(n)) }})
		synctest.Wait()
		disk.hang = make(chan struct{})
		l.Record(call(0))
		synctest.Wait() // it hangs in a write
		begin := time.Now()
		for i := range queueLen + 7 {
			l.Record(call(1 + i))
		}
		if waited := time.Since(begin); waited > 0 || lost.Load() != 7 {
			t.Errorf("after %v, %d entries are lost: want 7 at once", waited, lost.Load())
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close on a disk that hangs: %v", err)
		}
		l.Record(call(0)) // too late, and no panic
		close(disk.hang)
		stop(t, l)
		rep, err := Verify("", path)
		if err != nil || rep.Lines != 3+1+queueLen+1 { // segment, start, lost; the first; those that waited; stop
			t.Fatalf("%+v, %v", rep, err)
		}
		if all := strings.Join(lines(t, path), ""); !strings.Contains(all, "8 entries could not be written") {
			t.Error("no line says how many are lost")
		}
	})
}

func TestSegmentThatCannotBegin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	inTheWay := path + "." + segmentSuffix(1)
	var log bytes.Buffer
	w, err := openWriter(&Config{Path: path, Server: "s1", SegmentBytes: MinSegmentBytes, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fill := func() {
		for i := range MinSegmentBytes / 200 {
			e := call(i)
			if err := w.append([]record{e.record()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || w.size < MinSegmentBytes || !strings.Contains(log.String(), "is in the way") {
		t.Errorf("with %d bytes, it is told %d times:\n%s", w.size, n, log.String())
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	fill()
	old, err := segments(path)
	if err != nil || len(old) == 0 {
		t.Fatal(old, err)
	}
	if rep, err := Verify("", append(old, path)...); err != nil || rep.Servers[0].First != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
}
