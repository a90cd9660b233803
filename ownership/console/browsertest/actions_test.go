package browsertest

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

// What operators do and what they read of one worker, one partition and the
// ledger. The parts stand in the order in which they need the cluster's workers.
func TestOperatorsWork(t *testing.T) {
	browser(t)
	c := live.Start(t, live.Options{Servers: 1, Workers: 4, Partitions: 24})
	s := c.Servers[0]
	t.Run("each command to copy is one the binary accepts", func(t *testing.T) { commandsRun(t, s) })
	t.Run("the timeline goes on, and waits while paused", func(t *testing.T) { timelineLives(t, s) })
	t.Run("a stretch of time is chosen by keyboard", func(t *testing.T) { brushes(t, s) })
	t.Run("a refused action says why", func(t *testing.T) { refused(t, s) })
	t.Run("without rights there is only the command", func(t *testing.T) { readOnly(t, s) })
	t.Run("a takeover shows both tokens", func(t *testing.T) { takeover(t, c, s) })
	t.Run("evict wants the id typed", func(t *testing.T) { evicts(t, s) })
}

// do opens the dialog of an action without waiting for its end.
func do(p *Page, call string) {
	p.tb.Helper()
	p.Eval("import('/ui/actions.js').then(m => { m.act."+call+" })", nil)
	p.Await("the dialog of "+call+" says what will happen", "!!document.querySelector('dialog[open] li:not(.muted)')")
}

// leasehold runs a command line as somebody would who pastes it into a shell.
func leasehold(t *testing.T, line string) (out string, code int) {
	t.Helper()
	words := strings.Fields(line)
	if words[0] != "leasehold" || strings.ContainsAny(line, `"'$\;|&<>`) {
		t.Fatalf("%q is no command line that needs no quotes", line)
	}
	cmd := exec.CommandContext(t.Context(), live.Binary(t), words[1:]...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LEASEHOLD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	all, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", line, err)
	}
	return string(all), cmd.ProcessState.ExitCode()
}

func commandsRun(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	accepted := func(line string) {
		t.Helper()
		if !strings.Contains(line, "--server "+s.GRPC) {
			t.Errorf("%q does not name the server %s", line, s.GRPC)
		}
		// doctor tells by its code whether it found something.
		if out, code := leasehold(t, line); code != 0 && !(code == 1 && strings.HasPrefix(line, "leasehold doctor")) {
			t.Errorf("%s ends with %d: %s", line, code, out)
		}
	}
	for _, step := range []struct{ call, until string }{
		{"drain('w2')", "store.workers.find(w => w.id === 'w2').draining"},
		{"undrain('w2')", "!store.workers.find(w => w.id === 'w2').draining"},
		{"move('orders', 3)", "store.events.some(e => e.partition === 3 && e.cause === 'operator')"},
		{"retry('orders', 3)", "true"},
		{"evict('w2')", "store.workers.find(w => w.id === 'w2').draining"},
		{"undrain('w2')", "!store.workers.find(w => w.id === 'w2').draining"},
	} {
		do(p, step.call)
		// It says so for a moment only.
		p.Eval("(b => new MutationObserver(() => { b.said ??= b.textContent }).observe(b, {childList: true, characterData: true, subtree: true}))(document.querySelector('dialog .cli button'))", nil)
		p.Click("dialog .cli button")
		p.Await("the command is on the clipboard, or selected", "/^(Copied|Selected)/.test(document.querySelector('dialog .cli button').said)")
		var line string
		p.Eval("document.querySelector('dialog .cli code').textContent", &line)
		p.Key(kb.Escape)
		p.Await("Escape closes the dialog", "!document.querySelector('dialog')")
		accepted(line)
		p.Await(line+" shows", step.until)
	}
	for _, v := range []string{"workers", "servers", "timeline", "partition/orders/3"} {
		p.Go(v)
		if v == "timeline" {
			p.Await("Pause", "!!document.querySelector('button[aria-pressed=false]')")
			p.Eval("[...document.querySelectorAll('main button')].find(b => b.textContent === 'Pause').click()", nil) // else the command follows
		}
		p.Await("commands of "+v, "document.querySelectorAll('main .cli code').length > 0")
		var lines []string
		p.Eval("[...document.querySelectorAll('main .cli code')].map(c => c.textContent)", &lines)
		for _, line := range lines {
			accepted(line)
		}
	}
}

func timelineLives(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Go("timeline")
	press := func(name string) {
		t.Helper()
		p.Await(name, fmt.Sprintf("[...document.querySelectorAll('main button')].some(b => b.textContent.startsWith(%q) && (b.click(), true))", name))
	}
	p.Await("events", "!!document.querySelector('.events tbody tr:not([aria-hidden])')")
	leasehold(t, "leasehold workers drain w4 --server "+s.GRPC)
	p.Await("the drain is told", "[...document.querySelectorAll('.events tr')].some(r => r.textContent.includes('w4 is to be drained'))")
	p.Await("all of it has moved", "store.workers.find(w => w.id === 'w4').held === 0")
	press("Pause")
	leasehold(t, "leasehold workers undrain w4 --server "+s.GRPC)
	p.Await("it is known that there is more", "/^Resume \\(\\d+ new\\)/.test([...document.querySelectorAll('main button')].find(b => b.textContent.startsWith('Resume'))?.textContent)")
	const told = "[...document.querySelectorAll('.events tr')].some(r => r.textContent.includes('w4 may own partitions again'))"
	var early bool
	p.Eval(told, &early)
	if early {
		t.Error("a paused timeline goes on")
	}
	press("Resume")
	p.Eval("document.querySelector('.window').scrollTop = 0", nil)
	p.Eval("((s) => { s.value = 'worker_undrain'; s.dispatchEvent(new Event('input', {bubbles: true})) })(document.querySelector('[aria-label=Kind]'))", nil)
	p.Await("what was missed is told, and nothing of another kind", told+" && [...document.querySelectorAll('.events tbody tr:not([aria-hidden])')].every(r => r.textContent.includes('may own'))")
	p.Shot("timeline-filtered")
}

func brushes(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Go("timeline")
	const listed = "Number(document.querySelector('.events')?.getAttribute('aria-rowcount')) - 1"
	p.Await("events", listed+" > 24")
	var all int
	p.Eval(listed, &all)
	p.Eval("document.querySelector('.bins').focus()", nil)
	p.Key(kb.Home) // the oldest stretch there is
	p.Await("a stretch is chosen", "/: [\\d,]+ events?$/.test(document.querySelector('.key [aria-live]').textContent)")
	p.Await("not all events are of the first stretch", fmt.Sprintf("%s < %d", listed, all))
	p.do("type Shift+End", chromedp.KeyEvent(kb.End, chromedp.KeyModifiers(kb.ModifierShift)))
	p.Await("all events are of all stretches together", fmt.Sprintf("%s >= %d", listed, all))
	p.Key(kb.Escape)
	p.Await("nothing is chosen", "document.querySelector('.key [aria-live]').textContent.startsWith('Drag')")
	p.Await("all again", fmt.Sprintf("%s >= %d", listed, all))
	p.Eval("document.querySelector('.under summary').click()", nil)
	p.Await("the table has what the picture has", "document.querySelectorAll('.under tbody tr').length > 0")
}

func refused(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Expect("404")
	do(p, "evict('nobody')")
	p.Click("dialog input")
	p.Key("nobody", kb.Enter)
	p.Await("the server's reason", "document.querySelector('dialog [role=alert]').textContent.includes('nobody')")
	p.Await("another try is possible", "!document.querySelector('dialog button[type=submit]').disabled")
}

func readOnly(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Store("store.hello = {...store.hello, operator: false}", nil)
	for _, call := range []string{"drain('w1')", "evict('w1')", "move('orders', 1)"} {
		do(p, call)
		p.Await("nothing to press but copying and closing", "[...document.querySelectorAll('dialog button')].map(b => b.textContent).join() === 'Copy as CLI,Close'")
		p.Key(kb.Escape)
		p.Await("closed", "!document.querySelector('dialog')")
	}
}

func takeover(t *testing.T, c *live.Cluster, s *live.Server) {
	p := open(t, s.HTTP)
	p.Await("nothing moves any more", atRest)
	var n int
	p.Store("store.partitions.owner.indexOf(store.partitions.owners.indexOf('w1'))", &n)
	if n < 0 {
		t.Fatal("w1 owns nothing")
	}
	p.Go(fmt.Sprintf("partition/orders/%d", n))
	type lease struct{ From, Until, Owner, Token, For, Began, Ended string }
	leases := func() (all []lease) {
		p.Eval(`[...[...document.querySelectorAll('caption')].find(c => c.textContent.startsWith('Owners')).parentNode.querySelectorAll('tbody tr')]
			.map(r => [...r.cells].map(c => c.textContent)).map(([from, until, owner, token, long, began, ended]) => ({from, until, owner, token, for: long, began, ended}))`, &all)
		return all
	}
	p.Await("its history, and why", "document.querySelectorAll('.lanes i').length > 0 && !!document.querySelector('.reasons li')")
	old := leases()[0]
	if old.Owner != "w1" || old.Token == "" {
		t.Fatalf("the present owner is %+v, not w1", old)
	}
	c.Workers[0].Kill()
	p.Await("somebody else owns it", "document.querySelector('.now a')?.textContent.startsWith('w') && document.querySelector('.now a').textContent !== 'w1'")
	var now []lease
	live.Await(t, patience, "the history has both", func() error {
		if now = leases(); len(now) < 2 || now[0].Owner == "w1" || now[0].Owner == "nobody" {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	if len(now[0].Token) != len(old.Token) || now[0].Token <= old.Token {
		t.Errorf("the new owner's token %s is not above %s", now[0].Token, old.Token)
	}
	i := slices.IndexFunc(now, func(l lease) bool { return l.Token == old.Token })
	if i < 0 || now[i].Owner != "w1" || !regexp.MustCompile("^(revoke|expire): ").MatchString(now[i].Ended) {
		t.Errorf("the lease of w1 with token %s and its end are not told: %+v", old.Token, now)
	}
	p.Await("the picture has both", fmt.Sprintf("[%q, %q].every(t => [...document.querySelectorAll('.lanes i.lease')].some(i => i.title.includes(t)))", old.Token, now[0].Token))
	p.Shot("partition-after-takeover")
}

func evicts(t *testing.T, s *live.Server) {
	p := open(t, s.HTTP)
	p.Go("workers")
	const button = "[...document.querySelectorAll('main button')].find(b => b.ariaLabel === 'Evict w3')"
	p.Await("the button", "!!"+button)
	p.Eval(button+".click()", nil)
	p.Await("the field has the focus", "document.activeElement.matches('dialog input')")
	p.Key("w", kb.Enter)
	p.Await("part of the id is not enough", "document.querySelector('dialog button[type=submit]').disabled && document.querySelector('dialog').open")
	var state string
	p.Store("store.workers.find(w => w.id === 'w3').state", &state)
	if state != "live" {
		t.Fatalf("w3 is %s before it was confirmed", state)
	}
	p.Await("the dialog says what will happen", "!!document.querySelector('dialog[open] li:not(.muted)')") // it has its size
	p.Shot("dialog-evict")
	p.Key("3")
	p.Click("dialog button[type=submit]")
	p.Await("it is evicted, and the dialog is gone", "store.workers.find(w => w.id === 'w3').draining && store.workers.find(w => w.id === 'w3').state !== 'live' && !document.querySelector('dialog')")
	p.Await("the row says so", "[...document.querySelectorAll('main tbody tr')].some(r => r.textContent.includes('w3') && /evicted|gone/.test(r.textContent))")
	p.Await("so do those who listen", "document.getElementById('live').textContent.includes('w3 is evicted')")
}
