package httpfence_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

var stops = flag.Int("httpfence.stops", 5, "how often a writer process is stopped and continued")

const (
	writerURL  = "HTTPFENCE_TEST_WRITER"
	fencedCode = 3
)

// writer is the process that is stopped: it writes and writes until it is
// fenced, each write in two halves, so that it is mostly stopped within one.
func writer(url string) int {
	client := &http.Client{Transport: &httpfence.Transport{}}
	for {
		body, half := io.Pipe()
		go func() {
			_, _ = half.Write([]byte("half "))
			time.Sleep(2 * time.Millisecond)
			_, _ = half.Write([]byte("and half"))
			_ = half.Close()
		}()
		req, err := http.NewRequestWithContext(with(stamp(33, "w2")), "PUT", url, body)
		if err != nil {
			fmt.Println(err)
			return 1
		}
		resp, err := client.Do(req)
		if err != nil {
			continue // cut in the middle: the next one will be told
		}
		err = httpfence.CheckResponse(resp)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if errors.Is(err, fence.ErrStale) {
			fmt.Println(err)
			return fencedCode
		}
	}
}

// O-13 at an HTTP endpoint: a worker process is stopped with a write in
// flight, another one takes over, the first goes on. How long it was stopped
// does not matter, as no clock decides anything.
func TestStoppedProcessIsFencedWhenItGoesOn(t *testing.T) {
	inFlight, tries := 0, 0
	for ; tries < *stops || inFlight == 0 && tries < 20**stops; tries++ { // a busy machine stops few in a write
		var (
			mu       sync.Mutex
			accepted []fence.Token
			half     int
		)
		gate := fence.NewGate(fence.NewMemory(nil), nil)
		mux := http.NewServeMux()
		mux.Handle("POST /claim", httpfence.ClaimHandler(gate))
		mux.Handle("PUT /counter", httpfence.Middleware(gate)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			half++
			mu.Unlock()
			_, err := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			half--
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			s, _ := fence.FromContext(r.Context())
			accepted = append(accepted, s.Token)
		})))
		srv, c := serve(t, mux)
		count := func() (writes, open int) {
			mu.Lock()
			defer mu.Unlock()
			return len(accepted), half
		}

		old := exec.Command(os.Args[0])
		old.Env = append(os.Environ(), writerURL+"="+srv.URL+"/counter")
		var out bytes.Buffer
		old.Stdout, old.Stderr = &out, &out
		if err := old.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "the old owner writes", func() bool { n, open := count(); return n >= 5 && open > 0 })
		if err := old.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		until(t, "it has stopped", func() bool {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", old.Process.Pid))
			return err == nil && bytes.Contains(stat, []byte(") T "))
		})
		if _, open := count(); open > 0 {
			inFlight++
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := guardAt(t, srv.URL+"/claim", c).Claim(ctx, []fence.Stamp{stamp(34, "w4")})
		cancel()
		if err != nil {
			_ = old.Process.Kill()
			t.Fatalf("the new owner's claim, with a stopped process in its way: %v", err)
		}
		before, _ := count()
		if _, err := send(t, c, "PUT", srv.URL+"/counter", stamp(34, "w4")); err != nil {
			t.Errorf("the new owner's write: %v", err)
		}
		if err := old.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		err = old.Wait()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != fencedCode {
			t.Errorf("the old owner ended with %v, want the fenced error: %s", err, out.Bytes())
		}
		mu.Lock()
		if after := accepted[before:]; slices.Contains(after, 33) {
			t.Errorf("accepted after the claim: %v", after)
		}
		mu.Unlock()
	}
	if inFlight == 0 {
		t.Errorf("in none of %d stops a write was in flight: nothing was tried", tries)
	}
	t.Logf("%d stops, %d with a write in flight", tries, inFlight)
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30 s until %s", what)
		}
		time.Sleep(time.Millisecond) // another process: there is nothing to wait on
	}
}
