package clientgo

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock is one candidate's view of the key that the candidates compete for. Its methods may
// be called from any goroutine. It implements resourcelock.Interface.
type Lock struct {
	keys     clientv3.KV
	tokens   TokenSource
	key      string
	identity string
	event    func(string)

	mu       sync.Mutex
	revision int64  // of the key as last seen
	token    uint64 // of the present term; 0: this candidate has none
	counted  int    // leader transitions, as last seen
}

// TokenSource draws fencing tokens, each higher than all that were drawn before.
type TokenSource func(context.Context) (uint64, error)

// stored is the value of the key.
type stored struct {
	Record resourcelock.LeaderElectionRecord `json:"record"`
	Token  uint64                            `json:"token,string"` // of the term that the record is about
}

// NewLock returns the lock of a candidate with an identity of its own. event hears what
// client-go calls events; nil: nobody does.
func NewLock(keys clientv3.KV, tokens TokenSource, key, identity string, event func(string)) *Lock {
	if event == nil {
		event = func(string) {}
	}
	return &Lock{keys: keys, tokens: tokens, key: key, identity: identity, event: event}
}

// Token is the fencing token of this candidate's term, 0 while it has none. It stays until
// the next term begins or somebody else is seen to lead.
func (l *Lock) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Transitions is how often leadership has changed, as last seen.
func (l *Lock) Transitions() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counted
}

// forget ends this candidate's term: what it writes next begins a new one, even if the
// record still has its name.
func (l *Lock) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.token = 0
}

// Get returns the record and its bytes, or an error that apierrors.IsNotFound knows.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, err := l.keys.Get(ctx, l.key)
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", l.key, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(r.Kvs) == 0 {
		l.revision, l.token = 0, 0
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{Group: "leasehold", Resource: "keys"}, l.key)
	}
	var s stored
	if err := json.Unmarshal(r.Kvs[0].Value, &s); err != nil {
		return nil, nil, fmt.Errorf("read %s: it holds something else: %w", l.key, err)
	}
	l.revision, l.counted = r.Kvs[0].ModRevision, s.Record.LeaderTransitions
	if s.Record.HolderIdentity != l.identity || s.Token != l.token {
		l.token = 0 // somebody else leads, or another process under this name
	}
	return &s.Record, r.Kvs[0].Value, nil
}

// Create writes the record if there is none.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revision, l.token = 0, 0
	return l.writeLocked(ctx, record)
}

// Update writes the record if nobody has since it was last seen.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writeLocked(ctx, record)
}

// writeLocked compares the revision and sets the record. A term that begins draws its token
// before the write and after the read that the write depends on: whoever led in between has
// made the write fail, so tokens rise in the order of the terms.
func (l *Lock) writeLocked(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	token := l.token
	if record.HolderIdentity == l.identity && token == 0 {
		var err error
		if token, err = l.tokens(ctx); err != nil {
			return fmt.Errorf("draw a token for %s: %w", l.key, err)
		}
	}
	value, err := json.Marshal(stored{record, token})
	if err != nil {
		return fmt.Errorf("write %s: %w", l.key, err)
	}
	r, err := l.keys.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(l.key), "=", l.revision)).
		Then(clientv3.OpPut(l.key, string(value))).
		Commit()
	switch {
	case err != nil:
		return fmt.Errorf("write %s: %w", l.key, err)
	case !r.Succeeded:
		return apierrors.NewConflict(schema.GroupResource{Group: "leasehold", Resource: "keys"}, l.key, fmt.Errorf("it was changed since revision %d", l.revision))
	}
	l.revision, l.token, l.counted = r.Header.Revision, token, record.LeaderTransitions
	return nil
}

// release gives the key up if this candidate's term still stands in it.
func (l *Lock) release(ctx context.Context) error {
	mine := l.Token()
	record, _, err := l.Get(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine == 0 || l.token != mine {
		return nil
	}
	err = l.writeLocked(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: record.RenewTime, AcquireTime: record.AcquireTime,
	})
	if apierrors.IsConflict(err) { // somebody was quicker
		err = nil
	}
	l.token = 0
	return err
}

// RecordEvent passes an event on.
func (l *Lock) RecordEvent(text string) { l.event(text) }

// Identity of the candidate.
func (l *Lock) Identity() string { return l.identity }

// Describe names the key.
func (l *Lock) Describe() string { return "leasehold key " + l.key }
