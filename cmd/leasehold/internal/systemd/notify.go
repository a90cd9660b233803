// Package systemd tells systemd how this process fares, over the socket that
// it names in NOTIFY_SOCKET: sd_notify(3) without the C library. Without the
// variable, that is without systemd, all of it does nothing.
//
// It promises that a message is sent whole or an error returned within a
// second, and that the watchdog is fed only after a probe has succeeded. It
// starts no goroutine.
package systemd

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// sendTimeout bounds a message to a manager that does not read.
const sendTimeout = time.Second

// Notifier sends to the service manager. A nil one sends nothing. Methods may
// be called from any goroutine.
type Notifier struct{ addr *net.UnixAddr }

// FromEnv returns the Notifier that the environment asks for, or nil.
func FromEnv(getenv func(string) string) (*Notifier, error) {
	path := getenv("NOTIFY_SOCKET")
	switch {
	case path == "":
		return nil, nil
	case path[0] != '/' && path[0] != '@': // @: the abstract name space, which package net knows too
		return nil, fmt.Errorf("NOTIFY_SOCKET %q: want an absolute path, or @ and an abstract name", path)
	}
	return &Notifier{&net.UnixAddr{Name: path, Net: "unixgram"}}, nil
}

// Ready says that the start is over, or a reload.
func (n *Notifier) Ready() error { return n.send("READY=1") }

// Status says in one line what the process is about, for systemctl status.
func (n *Notifier) Status(text string) error {
	return n.send("STATUS=" + strings.Join(strings.Fields(text), " "))
}

// Reloading says that a reload has begun. Ready ends it.
func (n *Notifier) Reloading() error {
	return n.send("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(monotonic().Microseconds(), 10))
}

// Stopping says that the process is about to end.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Extend asks for at least d from now for a start or stop that takes longer
// than the unit allows.
func (n *Notifier) Extend(d time.Duration) error {
	return n.send("EXTEND_TIMEOUT_USEC=" + strconv.FormatInt(d.Microseconds(), 10))
}

// Alive feeds the watchdog.
func (n *Notifier) Alive() error { return n.send("WATCHDOG=1") }

// send opens the socket anew for each message, as libsystemd does: there are
// few, and the manager may have been restarted in between.
func (n *Notifier) send(lines ...string) error {
	if n == nil {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	defer func() { _ = conn.Close() }() // a datagram is sent or not
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	if _, err := conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		return fmt.Errorf("notify service manager: %w", err)
	}
	return nil
}
