package dashboards

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// Folder is where the files belong, from the root of the repository.
const Folder = "deploy/grafana"

// tag is what the dashboards find each other by.
const tag = "leasehold"

var source = common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}

// Files returns the dashboards as Grafana imports them, by file name.
func Files() (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, b := range []board{overview, ownership, workers, servers} {
		d, err := b.build()
		if err != nil {
			return nil, fmt.Errorf("build dashboard %s: %w", b.name, err)
		}
		text, err := json.MarshalIndent(d, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("encode dashboard %s: %w", b.name, err)
		}
		files[b.name+".json"] = append(text, '\n')
	}
	return files, nil
}

func uid(name string) string { return tag + "-" + name }

func (b board) build() (dashboard.Dashboard, error) {
	d := dashboard.NewDashboardBuilder(b.title).
		Uid(uid(b.name)).
		Description(b.about).
		Tags([]string{tag}).
		Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").
		Refresh("30s").
		Link(dashboard.NewDashboardLinkBuilder("Leasehold").
			Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).
			IncludeVars(true).
			KeepTime(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(choice("cluster", "Cluster", "label_values(leasehold_build_info, cluster)", false)).
		WithVariable(choice("keyspace", "Keyspace", `label_values(leasehold_partitions_configured{cluster=~"$cluster"}, keyspace)`, true)).
		Annotation(leaders())
	id, y := uint32(0), uint32(0)
	next := func() uint32 { id++; return id }
	for _, r := range b.rows {
		d.WithRow(dashboard.NewRowBuilder(r.question).Id(next()).
			GridPos(dashboard.GridPos{X: 0, Y: y, W: 24, H: 1}))
		y++
		x, tallest := uint32(0), uint32(0)
		for _, p := range r.panels {
			w, h := uint32(p.width), uint32(p.height())
			if x+w > 24 {
				x, y, tallest = 0, y+tallest, 0
			}
			d.WithPanel(p.builder(next(), dashboard.GridPos{X: x, Y: y, W: w, H: h}))
			x, tallest = x+w, max(tallest, h)
		}
		y += tallest
	}
	return d.Build()
}

// choice is a template variable; all means also those without the label.
func choice(name, label, labels string, several bool) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Query(dashboard.StringOrMap{String: &labels}).
		Datasource(source).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(several).
		IncludeAll(true).
		AllValue(".*").
		Current(dashboard.VariableOption{
			Text:  dashboard.StringOrArrayOfString{String: cog.ToPtr("All")},
			Value: dashboard.StringOrArrayOfString{String: cog.ToPtr("$__all")},
		})
}

// leaders marks the minute in which a server began to lead.
func leaders() *dashboard.AnnotationQueryBuilder {
	expr := matchers.Replace(`max by (cluster, instance) (leasehold_raft_is_leader{@}) == 1 ` +
		`unless max by (cluster, instance) (leasehold_raft_is_leader{@} offset 1m) == 1`)
	return dashboard.NewAnnotationQueryBuilder().
		Name("New leader").
		Datasource(source).
		Enable(true).
		IconColor("orange").
		Expr(expr).
		Step("1m").
		TitleFormat("{{instance}} leads").
		Target(prometheus.NewDataqueryBuilder().Expr(expr).RefId("Anno").Interval("1m"))
}

func (q query) target(n int, p panel) *prometheus.DataqueryBuilder {
	t := prometheus.NewDataqueryBuilder().
		RefId(string(rune('A' + n))).
		Expr(q.promQL()).
		LegendFormat(q.legend).
		EditorMode(prometheus.QueryEditorModeCode).
		Datasource(source)
	switch p.kind {
	case number:
		t.Instant()
	case heat:
		t.Range().Format(prometheus.PromQueryFormatHeatmap)
	default:
		t.Range()
	}
	return t
}

// thresholds are green where all is well.
func (l limits) thresholds() *dashboard.ThresholdsConfigBuilder {
	steps := []dashboard.Threshold{{Color: "green"}}
	add := func(at float64, colour string) {
		if at != 0 {
			steps = append(steps, dashboard.Threshold{Value: cog.ToPtr(at), Color: colour})
		}
	}
	if l.low {
		steps[0].Color = "red"
		add(l.bad, "orange")
		add(l.warn, "green")
	} else {
		add(l.warn, "orange")
		add(l.bad, "red")
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// onOff says what 1 and 0 mean.
func (p panel) onOff() []dashboard.ValueMapping {
	options := make(map[string]dashboard.ValueMappingResult)
	for i, text := range []string{p.off, p.on} {
		colour := [...]string{"#8e8e8e", "green"}[i]
		options[strconv.Itoa(i)] = dashboard.ValueMappingResult{Text: &text, Color: &colour, Index: cog.ToPtr(int32(i))}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}
}

// matcher finds the series by their names, as Grafana writes expressions.
func (l look) matcher() string { return "/(^| )" + regexp.QuoteMeta(l.word) + "$/" }

func (l look) properties() []dashboard.DynamicConfigValue {
	if l.dashed {
		return []dashboard.DynamicConfigValue{
			{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash", "dash": []int{8, 6}}},
			{Id: "custom.fillOpacity", Value: 0},
		}
	}
	return []dashboard.DynamicConfigValue{{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": l.colour}}}
}

// links lead to the dashboard that knows more, with the same time and choices.
func (p panel) links() []cog.Builder[dashboard.DashboardLink] {
	if p.more == "" {
		return nil
	}
	return []cog.Builder[dashboard.DashboardLink]{
		dashboard.NewDashboardLinkBuilder("More: " + p.more).
			Url("/d/" + uid(p.more) + "?${datasource:queryparam}&${cluster:queryparam}&${keyspace:queryparam}&${__url_time_range}"),
	}
}
