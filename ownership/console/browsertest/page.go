package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

// The store is a module of the page, and so is what views are tested with.
const withStore = `import('/ui/store.js').then(async ({store}) => { return (%s) })`

// Eval is the value of an expression in the page, which may be a promise; result is
// a pointer, or nil.
func (p *Page) Eval(expr string, result any) {
	p.tb.Helper()
	raw := run(p, "evaluate "+expr, chromedp.Evaluate[[]byte](expr, chromedp.EvalAwaitPromise))
	if result == nil || len(raw) == 0 {
		return
	}
	if err := json.Unmarshal(raw, result); err != nil {
		p.tb.Fatalf("%s is %s: %v", expr, raw, err)
	}
}

// Store is Eval of an expression in which store is that of the page.
func (p *Page) Store(expr string, result any) {
	p.tb.Helper()
	p.Eval(fmt.Sprintf(withStore, expr), result)
}

// Await waits until an expression is true. what says what is waited for; in the
// expression store is that of the page. While it cannot be evaluated it is not true
// yet: an element is missing, or the page is being loaded.
func (p *Page) Await(what, expr string) {
	p.tb.Helper()
	live.Await(p.tb, patience, what, func() error {
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		defer cancel()
		got, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](fmt.Sprintf(withStore, expr), chromedp.EvalAwaitPromise))
		if err == nil && string(got) != "true" {
			err = fmt.Errorf("is %s", got)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", expr, err)
		}
		return err
	})
}

// Go goes to a view of the console, as its address has it, and waits for it.
func (p *Page) Go(view string) {
	p.tb.Helper()
	p.Eval(fmt.Sprintf("location.hash = %q", "#/"+view), nil)
	name := view[:strings.IndexAny(view+"/", "/?")]
	p.Await("view "+view, fmt.Sprintf("decodeURIComponent(location.hash) === decodeURIComponent(%q) && !!document.querySelector('main .view.%s h1')", "#/"+view, name))
}

// Click clicks the first element of a selector, with the mouse, once it is there.
func (p *Page) Click(selector string) {
	p.tb.Helper()
	p.Await(selector, fmt.Sprintf("!!document.querySelector(%q)?.checkVisibility()", selector))
	p.do("click "+selector, chromedp.Click(chromedp.CSS(selector)))
}

// Key types keys of package kb, or text, where the focus is.
func (p *Page) Key(keys ...string) {
	p.tb.Helper()
	for _, k := range keys {
		p.do("type "+k, chromedp.KeyEvent(k))
	}
}

// ShiftTab goes back by one.
func (p *Page) ShiftTab() {
	p.tb.Helper()
	p.do("type Shift+Tab", chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(kb.ModifierShift)))
}

// Focus is a selector-like name of what has the focus: tag, id, then its words.
func (p *Page) Focus() (name string) {
	p.tb.Helper()
	p.Eval(`(e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : '') + ' ' + (e.ariaLabel || e.textContent || '').trim().slice(0, 60))(document.activeElement)`, &name)
	return name
}

// Prefer makes the page believe that its reader prefers "light" or "dark".
func (p *Page) Prefer(scheme string) {
	p.tb.Helper()
	p.do("prefer "+scheme, func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		_, err = cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return none, err
	})
}

// Frames draws for a while and returns the time between frames, in milliseconds,
// ascending.
func (p *Page) Frames(span time.Duration) (frames []float64) {
	p.tb.Helper()
	p.Eval(fmt.Sprintf(`new Promise(done => {
		const all = []; let last = performance.now(), begin = last;
		requestAnimationFrame(function tick(now) {
			all.push(now - last); last = now;
			now - begin < %d || all.length < 2 ? requestAnimationFrame(tick) : done(all.slice(1).sort((a, b) => a - b));
		});
	})`, span.Milliseconds()), &frames)
	return frames
}
