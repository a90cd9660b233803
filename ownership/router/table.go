package router

import (
	"slices"
	"sync/atomic"
)

// chunkRows is how many partitions share one immutable piece of a table. A
// change copies one piece, 2 KiB, however large the keyspace is.
const chunkRows = 128

// draining marks a row's word; tokens are below 2^53.
const draining = 1 << 63

// row is one partition. A reader sees a whole one or the one before: rows are
// never changed in place, their piece is replaced.
type row struct {
	word  uint64 // token, and draining
	place *place // never nil
}

func (r row) token() uint64  { return r.word &^ draining }
func (r row) draining() bool { return r.word&draining != 0 }
func (r row) owned() bool    { return r.place.worker != "" }

type chunk [chunkRows]row

// place is where rows point: an owner, or nobody for a reason.
type place struct {
	key placeKey
	// endpoint is filled in later where the server that told of the grant
	// could not.
	endpoint atomic.Pointer[string]
	worker   string // "": nobody
	rows     int    // that point here; the writer's
	asked    bool   // the endpoint need not be asked for; the writer's
}

type placeKey struct {
	session  uint64 // 0: from a hint, or nobody
	worker   string
	endpoint string // of a hint
	reason   string // of nobody
}

// places has each place once, so that rows of one owner share it. It is
// guarded by the router's mutex.
type places map[placeKey]*place

func (ps places) nobody(reason string) *place {
	return ps.get(placeKey{reason: reason}, "")
}

func (ps places) owner(session uint64, worker, endpoint string) *place {
	k := placeKey{session: session, worker: worker}
	if session == 0 {
		k.endpoint = endpoint
	}
	p := ps.get(k, endpoint)
	if *p.endpoint.Load() == "" && endpoint != "" {
		p.endpoint.Store(&endpoint)
	}
	return p
}

func (ps places) get(k placeKey, endpoint string) *place {
	p := ps[k]
	if p == nil {
		p = &place{key: k, worker: k.worker}
		p.endpoint.Store(&endpoint)
		ps[k] = p
	}
	return p
}

// use moves one row from a place to another, and forgets what no row points to.
func (ps places) use(from, to *place) {
	to.rows++
	from.rows--
	if from.rows == 0 && from != to {
		delete(ps, from.key)
	}
}

// table is one incarnation of a keyspace. Readers use the first group only.
type table struct {
	name       string
	id         uint32 // of the keyspace, never used again
	partitions uint32
	chunks     []atomic.Pointer[chunk]

	// What follows belongs to who holds the router's mutex.
	places places
	index  []uint64           // log index that a row is known from
	hinted map[uint32]hinting // rows that nothing but a hint vouches for
	fresh  map[uint32]*chunk  // pieces being changed, not shown yet
	dirty  []uint32           // partitions changed since they were last told
	tells  bool               // keep dirty
}

func newTable(name string, id, partitions uint32, ps places, tells bool) *table {
	t := &table{
		name: name, id: id, partitions: partitions, places: ps, tells: tells,
		chunks: make([]atomic.Pointer[chunk], (partitions+chunkRows-1)/chunkRows),
		index:  make([]uint64, partitions),
		hinted: map[uint32]hinting{}, fresh: map[uint32]*chunk{},
	}
	unlisted := ps.nobody("it has not been listed yet")
	unlisted.rows += int(partitions)
	blank := &chunk{}
	for i := range blank {
		blank[i].place = unlisted
	}
	for i := range t.chunks {
		t.chunks[i].Store(blank)
	}
	return t
}

// load is what readers see.
func (t *table) load(p uint32) row { return t.chunks[p/chunkRows].Load()[p%chunkRows] }

// get is what the writer sees.
func (t *table) get(p uint32) row {
	if c := t.fresh[p/chunkRows]; c != nil {
		return c[p%chunkRows]
	}
	return t.load(p)
}

// set changes a row; readers see it after show.
func (t *table) set(p uint32, r row) {
	old := t.get(p)
	delete(t.hinted, p)
	if old == r {
		return
	}
	c := t.fresh[p/chunkRows]
	if c == nil {
		c = new(chunk)
		*c = *t.chunks[p/chunkRows].Load()
		t.fresh[p/chunkRows] = c
	}
	c[p%chunkRows] = r
	t.places.use(old.place, r.place)
	if t.tells {
		t.dirty = append(t.dirty, p)
	}
}

// show publishes what has been set, and returns which partitions that were.
func (t *table) show() (changed []uint32) {
	for i, c := range t.fresh {
		t.chunks[i].Store(c)
	}
	if len(t.fresh) > 64 {
		t.fresh = map[uint32]*chunk{} // a map that was large once is slow for ever
	} else {
		clear(t.fresh)
	}
	changed, t.dirty = t.dirty, nil
	slices.Sort(changed)
	return slices.Compact(changed)
}

// drop lets go of the places, when the table is replaced.
func (t *table) drop() {
	nobody := &place{rows: 1}
	for p := range t.partitions {
		nobody.rows++
		t.places.use(t.get(p).place, nobody)
	}
}

// news is what an event, a list or a hint says of one partition.
type news struct {
	partition uint32
	index     uint64 // of the log; 0 for a hint
	token     uint64
	session   uint64
	worker    string // "": nobody
	endpoint  string
	reason    string // of nobody
	draining  bool
}

// rank orders what can happen to a lease within one log entry.
func (n *news) rank() int { return rank(n.worker != "", n.draining) }

func rank(owned, draining bool) int {
	switch {
	case !owned:
		return 2
	case draining:
		return 1
	}
	return 0
}

// newer tells whether news say more than the row has: of a higher token, or of
// the same lease at a later point of the log.
func (t *table) newer(n *news) bool {
	old := t.get(n.partition)
	switch index := t.index[n.partition]; {
	case n.token != old.token():
		return n.token > old.token()
	case n.index != index:
		return n.index > index
	default:
		return n.rank() > rank(old.owned(), old.draining())
	}
}

// learn takes in news that are newer than the row.
func (t *table) learn(n news) bool {
	if !t.newer(&n) {
		return false
	}
	t.put(n)
	return true
}

// put takes in news, whatever the row has.
func (t *table) put(n news) {
	old := t.get(n.partition)
	same := old.token() == n.token && old.place.worker == n.worker && old.owned()
	word, to := n.token, old.place
	if n.draining {
		word |= draining
	}
	switch {
	case n.worker == "":
		to = t.places.nobody(n.reason)
	case same && n.endpoint == "" && old.place.key.session == 0:
		to = t.places.owner(n.session, n.worker, *old.place.endpoint.Load()) // as the hint said
	case !same || old.place.key.session != n.session || n.endpoint != "":
		to = t.places.owner(n.session, n.worker, n.endpoint)
	}
	t.index[n.partition] = max(n.index, t.index[n.partition])
	t.set(n.partition, row{word: word, place: to})
}

// route describes a row.
func (t *table) route(p uint32, r row) Route {
	return Route{
		Keyspace: t.name, Partition: p, Owner: r.place.worker, Endpoint: *r.place.endpoint.Load(),
		Token: r.token(), Draining: r.draining(),
	}
}
