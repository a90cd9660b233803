package browsertest

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pixel is the colour of the middle of a partition's cell, a little off it, where
// no stroke goes through, and what a CSS colour is as one.
const pixel = `globalThis.one = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
	globalThis.seen = () => [...one.getImageData(0, 0, 1, 1).data].slice(0, 3).join();
	globalThis.pixel = p => { const map = document.querySelector('.view').heatmap, c = document.querySelector('.heat canvas'), r = c.getBoundingClientRect(), [x, y] = map.middle(p);
		one.drawImage(c, (x - r.left) * c.width / r.width - 2, (y - r.top) * c.height / r.height - 2, 1, 1, 0, 0, 1, 1); return seen() };
	globalThis.paint = css => { one.fillStyle = css; one.fillRect(0, 0, 1, 1); return seen() };
	globalThis.swatch = id => paint(getComputedStyle(document.querySelector('.legend button[data-key=' + id + '] .swatch')).backgroundColor);
	globalThis.rows = () => [...document.querySelectorAll('.table tbody tr')].map(tr => [...tr.cells].map(td => td.textContent));
	0`

// atRest: each partition has an owner, and for longer than the planner waits before it
// begins to even out it has moved none.
const atRest = "[...store.partitions.state].every(s => s === 1) && store.now() - Math.max(...store.partitions.since) > 5000"

// openMap shows the map of a cluster of one keyspace, demo.
func openMap(t *testing.T, http string) *Page {
	t.Helper()
	p := open(t, http)
	p.Go("partitions")
	p.Eval(pixel, nil)
	p.Await("all have owners, and the legend has them", atRest+" && new Set(store.partitions.owner).size === 3 && document.querySelectorAll('.legend button').length === 3")
	return p
}

// ownerOf is an expression for the owner of a partition.
func ownerOf(p int) string {
	return fmt.Sprintf("store.partitions.owners[store.partitions.owner[%d]]", p)
}

func TestMapOfPartitions(t *testing.T) {
	browser(t)
	http, _ := dev(t, "--workers", "3", "--partitions", "64")
	t.Run("a cell has its owner's colour", func(t *testing.T) {
		p := openMap(t, http)
		for _, n := range []int{0, 9, 63} {
			p.Await(fmt.Sprintf("cell %d", n), fmt.Sprintf("pixel(%d) === swatch(%s)", n, ownerOf(n)))
		}
		p.Await("colours differ", "new Set([...document.querySelectorAll('.legend button')].map(b => swatch(b.dataset.key))).size === 3")
	})

	t.Run("the legend highlights and filters", func(t *testing.T) {
		p := openMap(t, http)
		var at struct{ X, Y float64 }
		p.Eval(`(r => ({X: r.x + r.width / 2, Y: r.y + r.height / 2}))(document.querySelector('.legend button[data-key=dev-2]').getBoundingClientRect())`, &at)
		p.do("point at dev-2", chromedp.MouseEvent(chromedp.MouseMoved, at.X, at.Y))
		const only = `[...store.partitions.owner].every((o, p) => (pixel(p) === swatch('dev-2')) === (store.partitions.owners[o] === 'dev-2') && (pixel(p) === swatch(store.partitions.owners[o])) === (store.partitions.owners[o] === 'dev-2'))`
		p.Await("only cells of dev-2 have their colour", only)
		p.do("point elsewhere", chromedp.MouseEvent(chromedp.MouseMoved, 2, 2))
		p.Await("all have", `[...store.partitions.owner].every((o, p) => pixel(p) === swatch(store.partitions.owners[o]))`)
		p.Click(".legend button[data-key=dev-2]")
		p.do("point elsewhere", chromedp.MouseEvent(chromedp.MouseMoved, 2, 2))
		p.Await("it stays", only)
		p.Await("the table has those of dev-2", `document.querySelector('.legend [data-key=dev-2]').ariaPressed === 'true' && rows().length === store.workers.find(w => w.id === 'dev-2').held && rows().every(r => r[1] === 'dev-2')`)
		p.Click(".legend button[data-key=dev-2]")
	})

	t.Run("a cursor for the keyboard", func(t *testing.T) {
		p := openMap(t, http)
		p.Eval("document.querySelector('.heat').focus()", nil)
		p.Key(kb.ArrowRight, kb.ArrowRight, kb.ArrowRight)
		p.Await("it is at 2", "document.querySelector('.view').heatmap.cursor === 2 && !document.querySelector('.cursor').hidden")
		p.Await("it says who owns 2", fmt.Sprintf("document.querySelector('.chosen').textContent.startsWith('demo/2 owned by ' + %s) && document.getElementById('live').textContent.startsWith('Partition 2, owned by')", ownerOf(2)))
		p.Key(kb.End)
		p.Await("the end of the row", "(c => c > 2 && c < 64)(document.querySelector('.view').heatmap.cursor)")
		p.Key(kb.Home, kb.ArrowDown, kb.ArrowRight)
		p.Await("the second row", "document.querySelector('.view').heatmap.cursor > 3")
		p.Key(kb.ArrowUp, kb.Enter)
		p.Await("partition 1 is open", "location.hash === '#/partition/demo/1'")
	})

	t.Run("the table sorts, pages and filters", func(t *testing.T) {
		p := openMap(t, http)
		p.Await("fifty of 64", "rows().length === 50 && rows()[0][0] === '0' && document.querySelector('.pager').textContent.includes('1–50 of 64')")
		p.Click(".pager [aria-label='Next page']")
		p.Await("the rest", "rows().length === 14 && rows()[13][0] === '63' && document.activeElement.ariaLabel === 'Previous page'")
		p.Eval("document.querySelector('th button').click()", nil)
		p.Await("from the end", "rows()[0][0] === '63' && document.querySelector('th').ariaSort === 'descending'")
		p.Eval("document.querySelector('input[type=search]').focus()", nil)
		p.Key("10-12")
		p.Await("three", "rows().map(r => r[0]).join() === '12,11,10'")
	})

	t.Run("a link filters by state", func(t *testing.T) {
		p := openMap(t, http)
		p.Go("partitions?keyspace=demo&state=unowned")
		p.Await("nothing is unowned", "document.querySelector('.legend [data-key=unowned]')?.ariaPressed === 'true' && rows().length === 1 && rows()[0][0] === 'No partition matches.'")
	})

	t.Run("of 65,536 cells only those are drawn that have changed", func(t *testing.T) {
		p := openMap(t, http)
		var ms float64
		p.Eval(`import('/ui/heatmap.js').then(async ({heatmap}) => { const n = 65536, m = heatmap({onpoint() {}, onmove() {}, onopen() {}}); document.querySelector('main').append(m.el);
			const bucket = new Int16Array(n), mark = new Uint8Array(n).fill(1), looks = [{fill: '#00f', ink: '#fff'}, {fill: '#0f0', ink: '#000'}];
			const frame = () => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)));
			m.show({n, bucket, mark, looks}); await frame(); await frame(); bucket[7] = bucket[65000] = 1; const before = m.stats.cells; m.show({n, bucket, mark, looks}); await frame();
			const drawn = m.stats.cells - before; m.stop(); m.el.remove(); if (drawn !== 2) throw new Error(drawn + ' cells were drawn, not 2'); return m.stats.last })`, &ms)
		t.Logf("two of 65,536 cells: a frame of %.1f ms", ms)
	})
}

func TestPictureOfTheRing(t *testing.T) {
	browser(t)
	http, _ := dev(t, "--workers", "3", "--partitions", "64")
	p := open(t, http)
	p.Go("ring")
	p.Eval(pixel, nil)
	p.Await("the planner has done its work", atRest+" && store.workers.length === 3 && store.workers.every(w => w.held >= 20 && w.held <= 23)") // within 10 % of an even share
	p.Await("what is held is shown", `rows().length === 3 && store.workers.every(w => rows().some(r => r[0] === w.id && Number(r[3]) === w.held)) && store.workers.reduce((n, w) => n + w.held, 0) === 64`)
	p.Await("all of the ring is somebody's", `Math.abs(rows().reduce((n, r) => n + parseFloat(r[1]), 0) - 100) < 0.2 && /60 virtual nodes/.test(document.querySelector('.view').textContent)`)

	const picture = "document.querySelector('.dial canvas').toDataURL()"
	p.Eval("globalThis.before = "+picture, nil)
	p.Eval("document.querySelector('button.owner').focus()", nil)
	p.Await("a worker's arcs stand out", picture+" !== before")
	p.Eval("document.activeElement.blur()", nil)
	p.Await("and no more", picture+" === before")

	p.Store("globalThis.owners = store.partitions.owner.join()", nil)
	p.Eval("document.getElementById('sim-add').focus()", nil)
	p.Key("w9", kb.Enter)
	p.Await("the moves are told", `(o => o.querySelectorAll('table').length === 2 && /If w9 came, (\d+) partitions would move.* and (\d+) would stay/.exec(o.textContent)?.slice(1).reduce((n, x) => n + Number(x), 0) === 64)(document.getElementById('sim-outcome'))`)
	p.Await("they are the server's", `store.call('RingService', 'SimulateRing', {keyspace: 'demo', add: [{id: 'w9'}]}).then(a => new RegExp('If w9 came, ' + (64 - a.kept) + ' ').test(document.getElementById('sim-outcome').textContent))`)
	p.Await("nothing has moved", "owners === store.partitions.owner.join() && store.workers.length === 3")
	p.Shot("ring-what-if")
	p.Eval("document.getElementById('sim-add').value = ''; document.getElementById('sim-remove').value = 'dev-1'; document.querySelector('form').requestSubmit()", nil)
	p.Await("one that goes", `/If dev-1 went/.test(document.getElementById('sim-outcome').textContent)`)
}
