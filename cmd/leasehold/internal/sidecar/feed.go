package sidecar

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// maxEvents is how many events a watch can be behind and still resume.
const maxEvents = 1024

// feed keeps the last events for watches. Its methods may be called from any
// goroutine.
type feed struct {
	epoch string // ids of another sidecar mean nothing here

	mu      sync.Mutex
	last    uint64
	events  []event // up to last, oldest first
	changed chan struct{}
}

// event is one server-sent event.
type event struct {
	id   uint64
	name string
	data []byte // JSON, one line
}

func newFeed() *feed {
	return &feed{epoch: rand.Text()[:8], changed: make(chan struct{})}
}

func (f *feed) publish(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		return // only a type that JSON cannot express: none of ours
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	if len(f.events) == maxEvents {
		f.events = append(f.events[:0], f.events[1:]...)
	}
	f.events = append(f.events, event{f.last, name, data})
	close(f.changed)
	f.changed = make(chan struct{})
}

// head is the newest id, and a channel that is closed when there is a newer one.
func (f *feed) head() (uint64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.changed
}

// since returns the events after an id; false if some are not known any more.
func (f *feed) since(id uint64) ([]event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	behind := f.last - id
	if id > f.last || behind > uint64(len(f.events)) {
		return nil, false
	}
	return append([]event(nil), f.events[uint64(len(f.events))-behind:]...), true
}

// format writes an id as a watch sees it.
func (f *feed) format(id uint64) string { return fmt.Sprintf("%s-%d", f.epoch, id) }

// parse reads one; false if it is not of this feed.
func (f *feed) parse(s string) (uint64, bool) {
	number, ok := strings.CutPrefix(s, f.epoch+"-")
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(number, 10, 64)
	return id, err == nil
}
