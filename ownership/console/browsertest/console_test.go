package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// views are all there are, as addresses have them.
var views = []string{"overview", "partitions", "ring", "workers", "timeline", "servers", "partition/" + live.Keyspace + "/7"}

// open opens the console of a server and waits until it shows the cluster.
func open(t *testing.T, addr string) *Page {
	t.Helper()
	p := browser(t).Page(t, "http://"+addr+"/ui/")
	p.Await("connected", "store.connected && store.hello !== null")
	return p
}

// One cluster for all that can share it: the parts stand in the order in which
// they break it.
func TestConsoleOfALiveCluster(t *testing.T) {
	browser(t) // skips before a cluster is started
	c := live.Start(t, live.Options{Workers: 4, Partitions: 64})
	leader := c.Leader()
	follower := c.Servers[slices.IndexFunc(c.Servers, func(s *live.Server) bool { return s != leader })]

	t.Run("every view renders, light and dark", func(t *testing.T) { everyView(t, leader) })
	t.Run("a follower shows the same", func(t *testing.T) { sameAtFollower(t, c) })
	t.Run("by keyboard alone", func(t *testing.T) { byKeyboard(t, leader) })
	t.Run("drain from the page", func(t *testing.T) { drains(t, c, follower) })
	t.Run("a killed worker's partitions change colour", func(t *testing.T) { recolours(t, c, follower) })
	t.Run("a restarted server is found again", func(t *testing.T) { comesBack(t, follower) })
	t.Run("without a leader it goes on and says so", func(t *testing.T) { goesStale(t, c, follower) })
}

func everyView(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Expect("503") // while the servers elect, as they may on a busy machine
	for _, scheme := range []string{"light", "dark"} {
		p.Prefer(scheme)
		for _, v := range views {
			p.Go(v)
			p.Await("no part of "+v+" is broken", "!document.querySelector('.broken')")
			p.Eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))", nil)
			p.Shot(strings.ReplaceAll(v, "/", "-") + "-" + scheme)
		}
		var light float64
		p.Eval(`(m => (+m[0] + +m[1] + +m[2]) / 765)(getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g))`, &light)
		if (scheme == "light") != (light > 0.5) {
			t.Errorf("prefers %s, and the page's brightness is %.2f", scheme, light)
		}
	}
}

// What two servers show of the same state is the same, apart from what is their own.
func sameAtFollower(t *testing.T, c *live.Cluster) {
	leader := c.Leader() // by now perhaps another one
	follower := c.Servers[slices.IndexFunc(c.Servers, func(s *live.Server) bool { return s != leader })]
	a, b := open(t, leader.HTTP), open(t, follower.HTTP)
	const expr = `JSON.stringify([...store.partitions.owner].map((o, i) => [store.partitions.owners[o] ?? '', store.partitions.state[i]]))`
	live.Await(t, patience, "both show the same", func() error {
		var one, other string
		a.Store(expr, &one)
		b.Store(expr, &other)
		if one != other || len(one) < 64 {
			return fmt.Errorf("%s and %s", one, other)
		}
		return nil
	})
	a.Await("the leader knows what workers say", "store.cluster.leading && store.workers.length === 4 && store.workers.every(w => w.running >= 0)")
	b.Await("a follower says that it does not", "!store.cluster.leading && store.workers.length === 4 && store.workers.every(w => w.running === undefined)")
}

// byKeyboard reaches every view through its link, with Tab and Enter alone, and
// then opens a partition from the map.
func byKeyboard(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Expect("503") // as above
	p.Key(kb.Tab)
	if at := p.Focus(); !strings.HasPrefix(at, "a#skip") {
		t.Errorf("Tab goes to %q first, not to the skip link", at)
	}
	step := func() { p.Key(kb.Tab) }
	for _, v := range []string{"Partitions", "Ring", "Workers", "Timeline", "Servers", "Overview"} {
		reached := false
		for range 15 {
			step()
			if reached = strings.TrimSpace(strings.TrimPrefix(p.Focus(), "a")) == v; reached {
				break
			}
		}
		if !reached {
			t.Fatalf("Tab does not reach the link to %s", v)
		}
		p.Key(kb.Enter)
		p.Await(v, fmt.Sprintf("location.hash === %q && document.activeElement.tagName === 'H1'", "#/"+strings.ToLower(v)))
		step = p.ShiftTab // from the heading back to the links
	}
	p.Go("partitions")
	p.Await("the map is drawn", "!!document.querySelector('main canvas')")
	for range 40 {
		p.Key(kb.Tab)
		if strings.Contains(p.Focus(), "Map of") {
			break
		}
	}
	p.Key(kb.ArrowRight, kb.ArrowRight, kb.Enter)
	p.Await("a partition is open", "location.hash.startsWith('#/partition/')")
}

// drains drains a worker from the page of a follower, which sends it on, and takes
// it back.
func drains(t *testing.T, c *live.Cluster, s *live.Server) {
	p := open(t, s.HTTP)
	p.Go("workers")
	const button = `[...document.querySelectorAll('main button')].find(b => b.textContent === %q && b.closest('tr')?.textContent.includes('w2'))`
	for _, step := range []struct{ verb, until string }{{"Drain", "true"}, {"Undrain", "false"}} {
		find := fmt.Sprintf(button, step.verb)
		p.Await("button "+step.verb, "!!"+find)
		p.Eval(find+".click()", nil)
		p.Await("the dialog asks", "!!document.querySelector('dialog[open] li:not(.muted)')") // it has its size
		p.Shot("dialog-" + strings.ToLower(step.verb))
		var line string
		p.Eval("document.querySelector('dialog code').textContent", &line)
		if want := "leasehold workers " + strings.ToLower(step.verb) + " w2 --server " + s.GRPC; line != want {
			t.Errorf("the command to copy is %q, not %q", line, want)
		}
		var before bool
		p.Store("store.workers.find(w => w.id === 'w2').draining", &before)
		if fmt.Sprint(before) == step.until {
			t.Errorf("%s before it was confirmed", step.verb)
		}
		p.Click("dialog button[type=submit]")
		p.Await(step.verb+" has been done", "store.workers.find(w => w.id === 'w2').draining === "+step.until)
		live.Await(t, patience, "the cluster says so", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			list, err := c.Client().Workers().ListWorkers(ctx, &leaseholdv1.ListWorkersRequest{})
			for _, w := range list.GetItems() {
				if w.GetId() == "w2" && fmt.Sprint(w.GetDraining()) != step.until {
					err = fmt.Errorf("draining is %v", w.GetDraining())
				}
			}
			return err
		})
		p.Await("the dialog is gone", "!document.querySelector('dialog')")
	}
	c.AwaitOwned(patience)
}

// recolours kills a worker and looks at the pixels of the map.
func recolours(t *testing.T, c *live.Cluster, s *live.Server) {
	p := open(t, s.HTTP)
	p.Go("partitions")
	p.Eval("globalThis.loaded = 'once'", nil)
	p.Await("w1 owns some", "[...store.partitions.owner].some(o => store.partitions.owners[o] === 'w1')")
	// A copy is read, so that the map itself stays where the browser draws fast.
	const picture = `(c => { const copy = document.createElement('canvas'); copy.width = c.width; copy.height = c.height;
		const x = copy.getContext('2d', {willReadFrequently: true}); x.drawImage(c, 0, 0); const seen = {};
		const d = x.getImageData(0, 0, c.width, c.height).data;
		for (let i = 0; i < d.length; i += 4) { const k = d[i] + ',' + d[i+1] + ',' + d[i+2]; seen[k] = (seen[k] ?? 0) + 1; } return seen })(document.querySelector('main canvas'))`
	const swatch = `(i => i && getComputedStyle(i).backgroundColor)(document.querySelector('.legend button[data-key=w1] .swatch'))`
	p.Await("the legend has w1", "!!"+swatch)
	var colour string
	p.Eval(`(s => { const c = document.createElement('canvas').getContext('2d'); c.fillStyle = s; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3).join() })(`+swatch+`)`, &colour)
	var before, after map[string]int
	live.Await(t, patience, "the map has cells in the colour of w1", func() error {
		p.Eval(picture, &before)
		if before[colour] < 100 {
			return fmt.Errorf("%d pixels are %s", before[colour], colour)
		}
		return nil
	})
	c.Workers[slices.IndexFunc(c.Workers, func(w *live.Worker) bool { return w.ID == "w1" })].Kill()
	p.Await("w1 owns nothing", "![...store.partitions.owner].some(o => store.partitions.owners[o] === 'w1')")
	live.Await(t, patience, "no cell has the colour of w1", func() error {
		after = nil
		p.Eval(picture, &after)
		if after[colour] > before[colour]/20 {
			return fmt.Errorf("%d pixels are %s, before %d", after[colour], colour, before[colour])
		}
		return nil
	})
	var loaded string
	p.Eval("globalThis.loaded", &loaded)
	if loaded != "once" {
		t.Error("the page was loaded again")
	}
	p.Shot("after-kill")
	c.AwaitOwned(patience)
	p.Await("all is owned again, and the timeline knows of w1", "[...store.partitions.state].every(s => s === 1) && store.events.some(e => e.worker === 'w1' && e.kind === 'session_expire') || store.events.some(e => e.from === 'w1')")
}

func comesBack(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Expect("ERR_")
	p.Await("all there", "store.partitions.n === 64 && store.workers.length > 0")
	s.Terminate()
	p.Await("the loss is noticed", "!store.connected && store.problem !== ''")
	s.Start()
	p.Await("found again, with the whole picture", "store.connected && store.partitions.n === 64 && store.cluster.ready && store.workers.length > 0")
}

// goesStale stops the two other servers for a while.
func goesStale(t *testing.T, c *live.Cluster, s *live.Server) {
	p := open(t, s.HTTP)
	for _, other := range c.Servers {
		if other != s {
			other.Signal(syscall.SIGSTOP)
			defer other.Signal(syscall.SIGCONT)
		}
	}
	p.Await("no leader, and the age is told", "store.connected && store.cluster.leader === '' && store.cluster.age_ms > 1000 && store.cluster.not_ready_reason !== ''")
	p.Await("in words", "/no leader|stale/.test(document.getElementById('connection').textContent)")
	p.Shot("no-leader")
}

// What a server answers to a browser without rights: the page hides its buttons,
// and what is sent all the same is refused.
func TestConsoleForReading(t *testing.T) {
	browser(t)
	addr, _ := dev(t, "--workers", "1", "--console", "read")
	p := open(t, addr)
	p.Expect("403")
	p.Go("workers")
	p.Await("a worker is shown", "store.workers.length === 1")
	var got struct{ Code, Message string }
	p.Store("await store.call('WorkerService', 'DrainWorker', {id: 'dev-1'}).then(() => ({code: 'done'}), e => ({code: e.code, message: e.message}))", &got)
	if got.Code != "permission_denied" || !strings.Contains(got.Message, "--console operate") {
		t.Errorf("a drain from the page: %+v", got)
	}
	p.Await("nobody is drained", "!store.workers[0].draining && store.hello.operator === false")
	resp, err := http.Post("http://"+addr+"/leasehold.v1.WorkerService/DrainWorker", "application/json", strings.NewReader(`{"id":"dev-1"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a drain that no browser made: %s", resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	p.Await("the page shows it", "store.workers[0].draining")
}
