package browsertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is one Chromium.
type Browser struct {
	ctx   context.Context
	close []context.CancelFunc
	shots string
}

// Open starts a browser. shots is where pictures go; empty: nowhere. Without
// Chromium the test is skipped, or fails when LEASEHOLD_CI is set.
func Open(tb testing.TB, shots string) *Browser {
	tb.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	switch {
	case path != "":
	case os.Getenv("LEASEHOLD_CI") != "":
		tb.Fatal("chromium is missing, and LEASEHOLD_CI is set")
	default:
		tb.Skip("chromium is missing: install Debian's package chromium")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.Flag("force-color-profile", "srgb"),
		chromedp.WindowSize(1440, 900),
		chromedp.WSURLReadTimeout(time.Minute),
	)
	dir, err := os.MkdirTemp("", "leasehold-browser") // it leaves files behind
	if err != nil {
		tb.Fatal(err)
	}
	opts = append(opts, chromedp.Env("TMPDIR="+dir))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium refuses to run as root with one
	}
	b := &Browser{shots: shots}
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, end := chromedp.NewContext(alloc)
	b.ctx, b.close = ctx, []context.CancelFunc{end, stop, func() { _ = os.RemoveAll(dir) }}
	if err := chromedp.Do(ctx); err != nil {
		b.Close()
		tb.Fatalf("start %s: %v", path, err)
	}
	return b
}

// Close ends the browser and waits for its end.
func (b *Browser) Close() {
	_ = chromedp.Cancel(b.ctx)
	for _, end := range b.close {
		end()
	}
}

// Page is one tab. Its methods fail the test they were made for.
type Page struct {
	tb      testing.TB
	browser *Browser
	ctx     context.Context

	mu       sync.Mutex
	faults   []string
	expected []string
}

// violations makes those of the policy errors on the console.
const violations = `addEventListener('securitypolicyviolation', e =>
	console.error('content security policy: ' + e.violatedDirective + ' ' + e.blockedURI + ' in ' + e.sourceFile + ':' + e.lineNumber))`

// Page opens a tab at an address and closes it with the test, which fails of all
// that the browser complained of.
func (b *Browser) Page(tb testing.TB, url string) *Page {
	tb.Helper()
	p := &Page{tb: tb, browser: b}
	ctx, end := chromedp.NewContext(b.ctx, chromedp.WithListener(p.hear))
	p.ctx = ctx
	if err := chromedp.Do(ctx); err != nil { // the tab lives as long as the context of its first call
		end()
		tb.Fatalf("open a tab: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			p.Shot(strings.NewReplacer("/", "-", " ", "_").Replace("failed-" + tb.Name()))
		}
		end()
		for _, f := range p.Faults() {
			tb.Errorf("the browser complains: %s", f)
		}
	})
	p.do("prepare a tab", func(ctx context.Context, t *chromedp.Target) (none chromedp.Void, err error) {
		if _, err = cdp.Call(ctx, t, cdplog.Enable, cdp.Empty{}); err == nil {
			_, err = cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: violations})
		}
		return none, err
	})
	p.do("open "+url, chromedp.Navigate(url))
	return p
}

// hear collects complaints. It is called from chromedp's goroutine of the tab.
func (p *Page) hear(ev any) {
	switch ev := ev.(type) {
	case *runtime.EventExceptionThrown:
		text := ev.ExceptionDetails.Text
		if e := ev.ExceptionDetails.Exception; e != nil {
			text += " " + e.Description
		}
		p.fault("exception: " + text)
	case *runtime.EventConsoleAPICalled:
		if ev.Type != runtime.ConsoleAPICalledTypeError && ev.Type != runtime.ConsoleAPICalledTypeAssert && ev.Type != runtime.ConsoleAPICalledTypeWarning {
			return
		}
		var words []string
		for _, a := range ev.Args {
			words = append(words, strings.Trim(string(a.Value), `"`)+a.Description)
		}
		p.fault("console " + string(ev.Type) + ": " + strings.Join(words, " "))
	case *cdplog.EventEntryAdded:
		if ev.Entry.Level == cdplog.EntryLevelError || ev.Entry.Level == cdplog.EntryLevelWarning {
			p.fault(fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
		}
	}
}

func (p *Page) fault(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, text)
}

// Expect forgives complaints that contain text: a test that ends a server will hear
// of it.
func (p *Page) Expect(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expected = append(p.expected, text)
}

// Faults are the complaints so far, without the expected ones.
func (p *Page) Faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var left []string
	for _, f := range p.faults {
		forgiven := false
		for _, e := range p.expected {
			forgiven = forgiven || strings.Contains(f, e)
		}
		if !forgiven {
			left = append(left, f)
		}
	}
	return left
}

// patience bounds one thing that is asked of the browser.
const patience = time.Minute

func (p *Page) do(what string, step chromedp.Action[chromedp.Void]) {
	p.tb.Helper()
	run(p, what, step)
}

// run is a step with a value.
func run[T any](p *Page, what string, step chromedp.Action[T]) T {
	p.tb.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	got, err := chromedp.Run(ctx, step)
	if err != nil {
		p.tb.Fatalf("%s: %v", what, err)
	}
	return got
}

// Shot saves a picture of what is seen, if pictures are wanted.
func (p *Page) Shot(name string) {
	p.tb.Helper()
	if p.browser.shots == "" {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.tb.Errorf("take picture %s: %v", name, err)
		return
	}
	if err := os.WriteFile(filepath.Join(p.browser.shots, name+".png"), png, 0o644); err != nil {
		p.tb.Error(err)
	}
}
