package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

func main() {
	ctx, stop := signalContext(context.Background(), os.Stderr, os.Exit)
	code := run(ctx, env{
		args:    os.Args[1:],
		stdin:   os.Stdin,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		getenv:  os.Getenv,
		environ: os.Environ,
		isTerminal: func(f any) bool {
			file, ok := f.(*os.File)
			return ok && term.IsTerminal(int(file.Fd()))
		},
	})
	stop()
	os.Exit(code)
}

// signalError is the cause of the context when a signal ended it.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string { return "stopped by " + e.signal.String() }

// code is what a shell expects of a process that ended by the signal.
func (e *signalError) code() int {
	if s, ok := e.signal.(syscall.Signal); ok {
		return 128 + int(s)
	}
	return exitFailed
}

// signalContext ends with the first SIGINT or SIGTERM, which asks for an
// orderly end. The second one means now: exit is called at once.
func signalContext(parent context.Context, stderr interface{ Write([]byte) (int, error) }, exit func(int)) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case s := <-signals:
			cancel(&signalError{s})
		case <-ctx.Done():
			return
		}
		if s, ok := <-signals; ok {
			fmt.Fprintln(stderr, "leasehold: second signal, stopping now")
			exit((&signalError{s}).code())
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
		close(signals)
		<-done
	}
}
