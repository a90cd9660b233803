package dashboards

import "strings"

// board is one dashboard before it is put into Grafana's words.
type board struct {
	name  string // of the file, and the end of the uid
	title string
	about string
	rows  []row
}

// row is one question and the panels that answer it.
type row struct {
	question string
	panels   []panel
}

// kind is how a panel draws what its queries return.
type kind int

const (
	lines   kind = iota // a line for each series
	stacked             // areas on top of each other: the sum means something
	bars                // events in each interval, stacked
	heat                // a histogram over time
	states              // which of two states each series is in, over time
	number              // the newest value of each series, in large
)

// panel is one picture. Its queries are instant where it shows one moment.
type panel struct {
	kind    kind
	title   string
	about   string
	unit    string
	width   int    // of 24; a line of panels fills 24
	limits  limits // where the colour changes
	top     float64
	on, off string // what 1 and 0 mean, for states
	more    string // the dashboard that knows more
	queries []query
	looks   []look
}

// look is how a series is drawn whose name ends in a word, where its colour or
// line means something.
type look struct {
	word   string
	colour string
	dashed bool
}

// limits are the values from which on something is worth a look, and wrong.
// With low set, it is below them. A zero value is no limit.
type limits struct {
	warn, bad float64
	low       bool
}

// never is for what must not happen once.
var never = limits{bad: 1}

// query is one expression and what its series are called. In expr, @ stands
// for the matcher of the chosen cluster and @k for those of the chosen cluster
// and keyspaces.
type query struct {
	expr, legend string
}

var matchers = strings.NewReplacer(
	"@k", `cluster=~"$cluster",keyspace=~"$keyspace"`,
	"@", `cluster=~"$cluster"`)

func (q query) promQL() string { return matchers.Replace(q.expr) }

// height of a panel in Grafana's grid.
func (p panel) height() int {
	if p.kind == number {
		return 5
	}
	return 8
}
