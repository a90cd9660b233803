package browsertest

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// resize gives the page a window of another size.
func (p *Page) resize(width, height int64) {
	p.tb.Helper()
	p.do("resize", func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
		return none, err
	})
}

// pale lists words whose contrast with their ground is below AA: 4.5, or 3 for large
// ones. What cannot be used counts for nothing, as the standard has it.
const pale = `(() => {
	const x = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
	const rgb = (css, under) => { x.fillStyle = under ?? '#fff'; x.fillRect(0, 0, 1, 1); x.fillStyle = css; x.fillRect(0, 0, 1, 1); return [...x.getImageData(0, 0, 1, 1).data].slice(0, 3) };
	const light = c => { const [r, g, b] = c.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b };
	const ground = el => { const all = []; for (; el; el = el.parentElement) { const b = getComputedStyle(el).backgroundColor; if (b !== 'rgba(0, 0, 0, 0)') all.push(b); } return all.reverse().reduce((under, b) => 'rgb(' + rgb(b, under) + ')', '#fff') };
	const found = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	for (let n; n = walk.nextNode();) {
		const el = n.parentElement, s = getComputedStyle(el);
		if (!n.data.trim() || el.closest(':disabled, .hush, noscript, script, .skip, [aria-hidden=true], svg') || !el.checkVisibility()) continue;
		const a = light(rgb(s.color, ground(el))), b = light(rgb(ground(el))), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		const large = parseFloat(s.fontSize) >= 24 || parseFloat(s.fontSize) >= 18.66 && s.fontWeight >= 700;
		if (ratio < (large ? 3 : 4.5)) found.add(el.className + ' "' + n.data.trim().slice(0, 30) + '": ' + ratio.toFixed(2));
	}
	return [...found];
})()`

// openOwned opens the console of a cluster whose 32 partitions have owners.
func openOwned(t *testing.T, http string) *Page {
	t.Helper()
	p := open(t, http)
	p.Await("all have owners", "store.partitions.n === 32 && [...store.partitions.state].every(s => s === 1)")
	return p
}

func TestShell(t *testing.T) {
	browser(t)
	http, _ := dev(t, "--workers", "2", "--partitions", "32")
	t.Run("overview tells what is there", func(t *testing.T) {
		p := openOwned(t, http)
		p.Go("overview")
		p.Await("nothing is unowned", `document.querySelector('.tally b').textContent === '0' && /Each of 32 partitions has an owner/.test(document.querySelector('.tally').textContent)`)
		p.Await("the strip says so", `/32 owned/.test(document.querySelector('.strip').textContent) && document.querySelectorAll('.last li').length > 0`)
		p.Await("the header too", `document.getElementById('connection').textContent === 'live' && /dev · term/.test(document.getElementById('facts').textContent)`)
	})

	t.Run("words can be read in both themes", func(t *testing.T) {
		p := openOwned(t, http)
		for _, scheme := range []string{"light", "dark"} {
			p.Prefer(scheme)
			for _, v := range []string{"overview", "partitions", "ring", "workers", "timeline", "servers", "partition/demo/7"} {
				p.Go(v)
				p.Eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))", nil)
				var found []string
				p.Eval(pale, &found)
				if len(found) > 0 {
					t.Errorf("%s, %s: too pale:\n  %s", v, scheme, strings.Join(found, "\n  "))
				}
			}
		}
	})

	t.Run("a window of 380 pixels is wide enough", func(t *testing.T) {
		p := openOwned(t, http)
		p.resize(380, 800)
		for _, v := range []string{"overview", "partitions", "ring", "workers", "timeline", "servers", "partition/demo/7"} {
			p.Go(v)
			p.Eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))", nil)
			var wide []string
			p.Eval(`document.scrollingElement.scrollWidth <= 380 ? [] : [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 380 && !e.closest('.scroll, .window, code')).slice(0, 5).map(e => e.tagName + '.' + e.className)`, &wide)
			if len(wide) > 0 {
				t.Errorf("%s is wider than the window: %v", v, wide)
			}
			p.Shot("narrow-" + strings.ReplaceAll(v, "/", "-"))
		}
	})

	t.Run("a theme is chosen and remembered", func(t *testing.T) {
		p := openOwned(t, http)
		p.Prefer("light")
		p.Go("partitions")
		p.Eval(pixel, nil)
		p.Eval("globalThis.first = pixel(0)", nil)
		p.Click("#theme")
		p.Click("#theme")
		p.Await("dark, the picture too", "document.documentElement.dataset.theme === 'dark' && pixel(0) !== first && pixel(0) === swatch("+ownerOf(0)+")")
		p.do("load again", chromedp.Reload())
		p.Await("still dark", "store.connected && getComputedStyle(document.documentElement).colorScheme === 'dark' && /dark/.test(document.getElementById('theme').ariaLabel)")
		p.Click("#theme")
		p.Await("as the system has it", "document.documentElement.dataset.theme === undefined")
	})

	t.Run("owners keep their colours", func(t *testing.T) {
		p := openOwned(t, http)
		var problem string
		p.Eval(`import('/ui/colours.js').then(({colour, meet}) => {
			const ids = Array.from({length: 40}, (_, i) => 'node-' + i);
			meet(ids.slice(0, 8)); const eight = ids.slice(0, 8).map(colour);
			meet(ids); const all = ids.map(colour);
			if (new Set(all).size !== 40) return 'of 40 owners only ' + new Set(all).size + ' can be told apart';
			return eight.join() === all.slice(0, 8).join() ? '' : 'colours changed when others came';
		})`, &problem)
		if problem != "" {
			t.Error(problem)
		}
	})

	t.Run("addresses that are not", func(t *testing.T) {
		p := openOwned(t, http)
		p.Eval("location.hash = '#/nowhere/%E0%A4%A'", nil)
		p.Await("the overview", "document.querySelector('main h1')?.textContent === 'Overview'")
	})

	t.Run("a view that fails takes down only itself", func(t *testing.T) {
		p := openOwned(t, http)
		p.Expect("no picture today")
		p.Eval("globalThis.was = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = () => { throw new Error('no picture today') }", nil)
		p.Eval("location.hash = '#/ring'", nil)
		p.Await("it says so", `/cannot be shown/.test(document.querySelector('.broken[role=alert]')?.textContent) && /no picture today/.test(document.querySelector('.broken').textContent)`)
		p.Go("overview")
		p.Await("another view", "document.querySelector('.tally b').textContent === '0'")
		p.Eval("HTMLCanvasElement.prototype.getContext = was; location.hash = '#/ring'", nil)
		p.Await("it is back", "document.querySelectorAll('main tbody tr').length === 2")
	})
}
