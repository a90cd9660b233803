package browsertest

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

// What nobody plans for: names as long as they may be, addresses that lead nowhere,
// a viewer whose clock is wrong.
func TestConsoleInOddConditions(t *testing.T) {
	browser(t)
	c := live.Start(t, live.Options{Servers: 1, Workers: 1, Partitions: 12})
	s := c.Servers[0]
	long := strings.Repeat("W", 128)
	c.AddWorker(long)
	t.Run("long names leave everything in its place", func(t *testing.T) { longNames(t, s, long) })
	t.Run("who cannot take a partition is not offered it", func(t *testing.T) { offers(t, s) })
	t.Run("addresses that lead nowhere say so", func(t *testing.T) { nowhere(t, s) })
	t.Run("a history that cannot be had is asked for again", func(t *testing.T) { historyLater(t, s) })
	t.Run("a server that answers nothing is not waited for", func(t *testing.T) { silence(t, s) })
	t.Run("the server's clock counts", func(t *testing.T) { wrongClock(t, s) })
}

func longNames(t *testing.T, s *live.Server, long string) {
	p := open(t, s.HTTP)
	p.Await("all have owners", "store.workers.length === 2 && [...store.partitions.state].every(s => s === 1)")
	for _, v := range views[:len(views)-1] {
		p.Go(v)
		p.Await(v+" is no wider than the window", "document.documentElement.scrollWidth <= innerWidth || [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth && !e.closest('.scroll, .window, .legend, code')).slice(0, 9).map(e => e.tagName + '.' + e.className + ' ' + e.getBoundingClientRect().right)")
	}
	p.Go("workers")
	p.Await("the buttons can be seen", "(b => b && b.getBoundingClientRect().right <= innerWidth)([...document.querySelectorAll('main button')].find(b => b.ariaLabel === 'Evict "+long+"'))")
	p.Go("partitions")
	p.Await("so can the last column", "document.querySelector('main th:last-child').getBoundingClientRect().right <= innerWidth && [...document.querySelectorAll('main select')].every(s => s.getBoundingClientRect().right <= innerWidth)")
	p.Go("ring")
	p.Await("so can the buttons of the ring", "[...document.querySelectorAll('main th, main button, main select')].every(b => b.getBoundingClientRect().right <= innerWidth)")
}

// sidecar runs a worker in a keyspace until the test ends.
func sidecar(t *testing.T, s *live.Server, keyspace, id string, flags ...string) {
	t.Helper()
	words := append([]string{"run", "--server", s.GRPC, "--keyspace", keyspace, "--id", id, "--mode", "per-worker"}, flags...)
	cmd := exec.Command(live.Binary(t), append(words, "--", "sleep", "3600")...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.WaitDelay = time.Second // its command may hold the other end
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its command dies with it
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s says:\n%s", id, said.String())
		}
	})
}

func offers(t *testing.T, s *live.Server) {
	if out, code := leasehold(t, "leasehold keyspace create other --partitions 4 --server "+s.GRPC); code != 0 {
		t.Fatalf("keyspace create ends with %d: %s", code, out)
	}
	sidecar(t, s, "other", "stranger")
	sidecar(t, s, live.Keyspace, "full", "--capacity", "1")
	p := open(t, s.HTTP)
	p.Await("both are there", "['stranger', 'full'].every(id => store.workers.find(w => w.id === id)?.state === 'live')")
	// The planner leaves alone what has moved lately: everything, if one worker had it all at first.
	live.Await(t, patience, "full has one", func() error {
		out, _ := leasehold(t, "leasehold partitions move "+live.Keyspace+"/0 --to full --server "+s.GRPC)
		var held int
		if p.Store("store.workers.find(w => w.id === 'full').held", &held); held == 0 {
			return fmt.Errorf("move: %s", out)
		}
		return nil
	})
	p.Await("both have partitions", "['stranger', 'full'].every(id => store.workers.find(w => w.id === id)?.held > 0)")
	var n int
	p.Store("store.partitions.owner.indexOf(store.partitions.owners.indexOf('w1'))", &n)
	do(p, fmt.Sprintf("move('orders', %d)", n))
	var offered []string
	p.Eval("[...document.querySelectorAll('dialog option')].map(o => o.value)", &offered)
	if len(offered) != 1 || !strings.HasPrefix(offered[0], "WWW") {
		t.Errorf("the partition is offered to %q", offered)
	}
	p.Key(kb.Escape)
	p.Await("closed", "!document.querySelector('dialog')")
	do(p, "drain('w1')")
	p.Await("nor are they counted", "document.querySelector('dialog ul').textContent.includes('1 other live worker can')")
}

func nowhere(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Expect("404")
	p.Eval("location.hash = '#/partition/orders/x7'", nil)
	p.Await("what is no number is no partition 0", "document.querySelector('main h1')?.textContent === 'Partitions'")
	p.Go("partition/orders/12")
	p.Await("a number too large does not exist, and cannot be moved", "document.querySelector('.now')?.textContent === 'does not exist' && ![...document.querySelectorAll('main button')].some(b => b.textContent === 'Move' && b.checkVisibility())")
	p.Go("partitions?keyspace=nope")
	p.Await("there is no such keyspace", "document.getElementById('map-title')?.textContent === 'There is no keyspace nope'")
	var stuck bool
	if p.Eval("document.getElementById('keyspace').disabled", &stuck); stuck {
		t.Error("the keyspace that there is cannot be chosen")
	}
}

func historyLater(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Await("all have owners", "[...store.partitions.state].every(s => s === 1)")
	p.Store("(store.asked = store.call, store.events = [], store.call = (s, m, ...rest) => m === 'ListEvents' ? Promise.reject(new Error('no leader')) : store.asked(s, m, ...rest), 0)", nil)
	p.Go("partition/orders/7")
	p.Await("that is said", "document.querySelector('main').textContent.includes('Its history cannot be had: no leader.')")
	p.Store("(store.call = store.asked, 0)", nil)
	p.Await("the history comes", "/^\\d+ leases?, .*as far back as the ledger goes/.test([...document.querySelectorAll('main p.small')].map(p => p.textContent).find(t => t.includes('lease')))")
}

func silence(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Eval("AbortSignal.timeout = (ms) => ms > 0 && ms <= 60000 ? AbortSignal.abort() : undefined", nil)
	var said string
	p.Store("store.call('WorkerService', 'ListWorkers').then(() => 'an answer', (err) => err.message)", &said)
	if said != "the server does not answer" {
		t.Errorf("when the time is over the page says %q", said)
	}
}

func wrongClock(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Await("all have owners", "[...store.partitions.state].every(s => s === 1)")
	p.Eval("Date.now = () => 1e12", nil) // 2001
	p.Go("partition/orders/7")
	p.Await("the lease is drawn where it can be seen", "((i, all) => i && i.left >= all.left && i.width > 1 && i.right <= all.right + 4)(...['.lanes i.lease', '.lanes'].map(s => document.querySelector(s)?.getBoundingClientRect()))")
	p.Await("and as long as it lasts", "/^\\d[\\d.]* (m?s|min)/.test([...document.querySelectorAll('caption')].find(c => c.textContent.startsWith('Owners'))?.parentNode.querySelector('tbody tr')?.cells[4]?.textContent)")
}

// Another cluster at the address of an old one: nothing of the old one is left.
func TestAnotherClusterAtTheSameAddress(t *testing.T) {
	browser(t)
	var p *Page
	var addr string
	outer := t
	t.Run("one", func(t *testing.T) {
		// No port of those that the kernel gives away while nobody listens.
		addr, _ = dev(t, "--keyspace", "one", "--workers", "1", "--partitions", "8", "--http-addr", live.FreePorts(t, 1)[0])
		p = open(outer, addr)
		p.Await("its events", "store.events.some(e => e.keyspace === 'one')")
	})
	p.Expect("net::")
	t.Run("another", func(t *testing.T) {
		dev(t, "--keyspace", "two", "--workers", "1", "--partitions", "8", "--http-addr", addr)
		p.Await("only the other", "store.connected && store.keyspace === 'two' && store.events.some(e => e.keyspace === 'two') && !store.events.some(e => e.keyspace === 'one')")
	})
}
