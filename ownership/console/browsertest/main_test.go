package browsertest

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
)

var screenshots = flag.String("screenshots", "", "save pictures of the console in this `directory`")

// theBrowser is started by the first test that needs it.
var theBrowser struct {
	sync.Mutex
	it *Browser
}

func browser(tb testing.TB) *Browser {
	tb.Helper()
	theBrowser.Lock()
	defer theBrowser.Unlock()
	if theBrowser.it == nil {
		theBrowser.it = Open(tb, *screenshots)
	}
	return theBrowser.it
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if theBrowser.it != nil {
		theBrowser.it.Close()
	}
	live.Clean()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
