package client

import (
	"errors"
	"testing"
)

// What several servers have in common is said once, and nothing else is left out.
func TestUnreachableSaysEachFailureOnce(t *testing.T) {
	err := &UnreachableError{Servers: []ServerError{
		{Addr: "a:1", Err: errors.New("EOF"), Distrust: WantsTLS},
		{Addr: "b:1", Err: errors.New("connection refused")},
		{Addr: "c:1", Err: errors.New("connection reset by peer"), Distrust: WantsTLS},
		{Addr: "d:1", Err: errors.New("connection refused")},
		{Addr: "e:1", Err: errors.New("no route to host")},
	}}
	want := "no server answers: a:1, c:1: " + WantsTLS.String() + " (EOF); b:1, d:1: connection refused; e:1: no route to host"
	if got := err.Error(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
