package worker

import (
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/bootclock"
	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"google.golang.org/grpc/codes"
)

func revoked(int) error {
	return leaseholdv1.StatusError(codes.Unauthenticated, &leaseholdv1.ErrorDetail{
		Reason: leaseholdv1.ReasonUnauthenticated, Message: "credential batch is revoked: ask for another"})
}

// revoke lets nobody in from now on, and ends the streams that are open.
func (c *cluster) revoke(s *peerSession) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deny = revoked
	close(s.out)
	s.out = nil
}

// Whoever is no longer let in works until the deadline, not longer, and then
// says why instead of searching for ever.
func TestRevokedWorkerEndsWithItsLeases(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1, 2)
		b.seen.started(t, 2)
		b.c.revoke(s)
		began := time.Now()
		var err error
		select {
		case err = <-b.done:
		case <-time.After(20 * time.Second):
			b.stop()
			t.Fatalf("it still searches: Run = %v", <-b.done)
		}
		var refused *RefusedError
		if !errors.Is(err, ErrDenied) || !errors.As(err, &refused) || refused.Detail.GetReason() != leaseholdv1.ReasonUnauthenticated {
			t.Errorf("Run = %v", err)
		}
		if !contains(err.Error(), "credential batch is revoked") {
			t.Errorf("%q does not say why", err)
		}
		if !b.log.has("WARN the servers do not let this worker in") {
			t.Error("nothing was said while there was time to do something")
		}
		for _, x := range b.seen.ended(t, 2) {
			if x.cause != ErrExpired {
				t.Errorf("context ended with %v", x.cause)
			}
		}
		if d := time.Since(began); d > 13*time.Second {
			t.Errorf("ended %v after it was locked out", d)
		}
		b.stop()
	})
}

// Servers that bound failed logins count those of all workers behind an address, and
// soon say nothing else.
func TestRevokedAmongManyEndsAsWell(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		b.c.revoke(s)
		began := time.Now()
		tries := 0 // under the cluster's lock
		b.c.mu.Lock()
		b.c.deny = func(i int) error {
			if tries++; tries <= 6 {
				return revoked(i)
			}
			return leaseholdv1.StatusError(codes.ResourceExhausted, &leaseholdv1.ErrorDetail{
				Reason: leaseholdv1.ReasonLimited, Message: "too many failed logins from this address", RetryAfterMs: 200})
		}
		b.c.mu.Unlock()
		select {
		case err := <-b.done:
			if !errors.Is(err, ErrDenied) || !contains(err.Error(), "credential batch is revoked") {
				t.Errorf("Run = %v", err)
			}
		case <-time.After(20 * time.Second):
			b.stop()
			t.Fatalf("it still searches: Run = %v", <-b.done)
		}
		if d := time.Since(began); d > 13*time.Second {
			t.Errorf("ended %v after it was locked out", d)
		}
		b.c.mu.Lock()
		defer b.c.mu.Unlock()
		if most := 3 * 4 * 13; tries > most {
			t.Errorf("%d calls while it was locked out, at most %d are fine", tries, most)
		}
		b.stop()
	})
}

// A server that has not heard yet of a credential, or not of its renewal, ends
// nothing: others have, and so will this one.
func TestOneServerThatDeniesEndsNothing(t *testing.T) {
	inBubble(t, 10*time.Second, 3, func(b *bench) {
		b.c.deny = func(i int) error {
			if i == 0 {
				return revoked(i)
			}
			return nil
		}
		b.join()
		b.run(untilDone)
		s := b.c.only()
		b.c.grant(s, 1)
		b.seen.started(t, 1)
		b.c.revoke(s)
		pass(4 * time.Second)
		b.c.mu.Lock()
		b.c.deny = nil
		b.c.mu.Unlock()
		pass(20 * time.Second)
		if err := b.finish(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if b.c.opens != 1 {
			t.Errorf("opened %d sessions: the first was lost", b.c.opens)
		}
	})
}

func TestDeniedAtOnce(t *testing.T) {
	inBubble(t, 10*time.Second, 2, func(b *bench) {
		b.join()
		b.c.open = func(o *leaseholdv1.OpenSession) error {
			return leaseholdv1.StatusError(codes.PermissionDenied, &leaseholdv1.ErrorDetail{
				Reason: leaseholdv1.ReasonDenied, Value: "orders", Message: `keyspace "orders": the role worker has pay-* alone`})
		}
		began := time.Now()
		err := b.w.Run(b.t.Context(), "orders", untilDone)
		if !errors.Is(err, ErrDenied) || !contains(err.Error(), "pay-*") {
			t.Errorf("Run = %v", err)
		}
		b.c.deny = revoked
		_, err = Join(b.t.Context(), Config{Servers: b.c.list(), ID: "w1", Dialer: b.c.net.dial, Clock: bootclock.Monotonic()})
		if !errors.Is(err, ErrDenied) || !contains(err.Error(), "join cluster: ") || !contains(err.Error(), "revoked") {
			t.Errorf("Join = %v", err)
		}
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("took %v to say so", d)
		}
	})
}

// Join does not wait for a server that cannot be trusted to become another one.
func TestJoinWithTLSToServersWithout(t *testing.T) {
	inBubble(t, 10*time.Second, 2, func(b *bench) {
		began := time.Now()
		_, err := Join(b.t.Context(), Config{Servers: b.c.list(), ID: "w1", Dialer: b.c.net.dial, Clock: bootclock.Monotonic(),
			TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
		var u *client.UnreachableError
		if !errors.As(err, &u) || u.Distrust() != client.SpeaksPlain {
			t.Errorf("Join = %v", err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("took %v to say so", d)
		}
	})
}

func TestCredentialNeedsTLS(t *testing.T) {
	err := Config{Servers: "127.0.0.1:7400", Credential: func() (string, error) { return "", nil }}.Validate()
	if !errors.Is(err, client.ErrCredentialInPlain) || !contains(err.Error(), "Credential") {
		t.Errorf("Validate = %v", err)
	}
}
