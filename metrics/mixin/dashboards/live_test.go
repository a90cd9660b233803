package dashboards

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/metrics/mixin/live"
	"github.com/leasehold-dev/leasehold/metrics/mixin/rules"
)

func TestMain(m *testing.M) {
	code := m.Run()
	live.Clean()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// happened are panels of what the storm makes happen: they show more than zero.
var happened = []string{
	"overview/Unowned now", "overview/Budget burn, 1 h", "overview/Moves by reason", "overview/Work past its end",
	"ownership/Time to a new owner", "ownership/Partitions without an owner", "ownership/Moves by reason",
	"ownership/Leases audited", "ownership/Tokens checked", "ownership/Tokens refused", "ownership/Grants",
	"workers/Sessions opened and ended", "workers/Renewals by outcome", "workers/Leases lost by cause", "workers/Handlers returned by outcome",
	"servers/Elections", "servers/Calls", "servers/Calls not answered well", "servers/Keys and their history", "servers/Watches of keys",
}

// unbroken are panels that stay at zero whatever the storm does.
var unbroken = []string{"overview/Broken promises", "ownership/Found by the audit"}

// TestPanelsShowAStorm: a real Prometheus that has scraped a live cluster under
// a storm has an answer for every query of every panel, with numbers in it.
func TestPanelsShowAStorm(t *testing.T) {
	live.Need(t, "prometheus")
	boards := committed(t)
	begin := time.Now()
	c := live.Start(t, live.Options{Partitions: partitions})
	p := live.StartPrometheus(t, c, live.PrometheusOptions{Rules: []string{filepath.Join(root, rules.Folder, "leasehold.rules.yml")}})
	storm(t, c, p)

	v := view{p, begin}
	live.Await(t, time.Minute, "every panel shows data", func() error {
		var faults []error
		for name, b := range boards {
			for _, panel := range b.panels() {
				if err := v.complete(panel); err != nil {
					faults = append(faults, fmt.Errorf("%s, %q: %w", name, panel.Title, err))
				}
			}
		}
		for _, a := range boards["overview"].Annotations.List {
			if n, err := v.samples(modelTarget{Expr: a.Expr}, "== 1"); n == 0 || err != nil {
				faults = append(faults, fmt.Errorf("no mark for %s (%v)", a.Name, err))
			}
		}
		for _, at := range happened {
			if n, err := v.count(find(t, boards, at), "> 0"); n == 0 || err != nil {
				faults = append(faults, fmt.Errorf("%s shows nothing of the storm (%v)", at, err))
			}
		}
		return errors.Join(faults...)
	})
	for name, b := range boards {
		t.Logf("%-9s %2d panels, all with data", name, len(b.panels()))
	}
	for _, at := range unbroken {
		if n, err := v.count(find(t, boards, at), "!= 0"); n != 0 || err != nil {
			t.Errorf("%s is not all zeroes: %d samples (%v)", at, n, err)
		}
	}
	t.Logf("%.1f s in all", time.Since(begin).Seconds())
}

// view asks as Grafana does with the time since begin on the screen.
type view struct {
	p     *live.Prometheus
	begin time.Time
}

// complete says which query of a panel has no answer with a number in it.
func (v view) complete(p modelPanel) error {
	for _, q := range p.Targets {
		if n, err := v.samples(q, "< Inf"); err != nil {
			return err
		} else if n == 0 {
			return fmt.Errorf("no data for %s", q.Expr)
		}
	}
	return nil
}

// count returns how many samples of a panel's queries are numbers that fulfil a
// condition.
func (v view) count(p modelPanel, condition string) (sum int, err error) {
	for _, q := range p.Targets {
		n, err := v.samples(q, "< Inf "+condition)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// samples counts an answer's samples that fulfil a condition; not a number
// fulfils none.
func (v view) samples(q modelTarget, condition string) (int, error) {
	now := time.Now()
	expr := strings.NewReplacer(
		"$__rate_interval", "1m", // longer than a worker stands still, however busy the machine is
		"$__range", fmt.Sprintf("%ds", int(now.Sub(v.begin).Seconds())),
		"$cluster", live.ClusterLabel,
		"$keyspace", "("+live.Keyspace+"|"+spare+")", // as Grafana writes several
	).Replace(q.Expr)
	expr = "abs(" + expr + ") " + condition
	if q.Instant {
		samples, err := v.p.Query(expr)
		return len(samples), err
	}
	_, points, err := v.p.QueryRange(expr, v.begin, now, time.Second)
	return points, err
}

// find returns a panel by dashboard and title.
func find(t *testing.T, boards map[string]modelBoard, at string) modelPanel {
	t.Helper()
	board, title, _ := strings.Cut(at, "/")
	for _, p := range boards[board].panels() {
		if p.Title == title {
			return p
		}
	}
	t.Fatalf("there is no panel %s", at)
	return modelPanel{}
}
