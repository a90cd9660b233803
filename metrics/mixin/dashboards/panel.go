package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// builder is what the builders of all kinds of panels have in common.
type builder[B any] interface {
	Id(uint32) B
	Title(string) B
	Description(string) B
	Datasource(common.DataSourceRef) B
	GridPos(dashboard.GridPos) B
	Links([]cog.Builder[dashboard.DashboardLink]) B
	Unit(string) B
	Thresholds(cog.Builder[dashboard.ThresholdsConfig]) B
	WithTarget(cog.Builder[variants.Dataquery]) B
	OverrideByRegexp(string, []dashboard.DynamicConfigValue) B
}

// fill sets what panels of all kinds have.
func fill[B builder[B]](b B, p panel, id uint32, at dashboard.GridPos) B {
	b.Id(id).Title(p.title).Description(p.about).Datasource(source).GridPos(at).
		Links(p.links()).Unit(p.unit).Thresholds(p.limits.thresholds())
	for i, q := range p.queries {
		b.WithTarget(q.target(i, p))
	}
	for _, l := range p.looks {
		b.OverrideByRegexp(l.matcher(), l.properties())
	}
	return b
}

func (p panel) builder(id uint32, at dashboard.GridPos) cog.Builder[dashboard.Panel] {
	switch p.kind {
	case number:
		return p.stat(fill(stat.NewPanelBuilder(), p, id, at))
	case heat:
		return p.heat(fill(heatmap.NewPanelBuilder(), p, id, at))
	case states:
		return p.states(fill(statetimeline.NewPanelBuilder(), p, id, at))
	default:
		return p.graph(fill(timeseries.NewPanelBuilder(), p, id, at))
	}
}

func (p panel) stat(b *stat.PanelBuilder) cog.Builder[dashboard.Panel] {
	return b.
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		GraphMode(common.BigValueGraphModeNone).
		ColorMode(common.BigValueColorModeBackground).
		TextMode(common.BigValueTextModeAuto).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
		NoValue("no data")
}

func (p panel) heat(b *heatmap.PanelBuilder) cog.Builder[dashboard.Panel] {
	return b.
		Calculate(false).
		Color(heatmap.NewHeatmapColorOptionsBuilder().
			Mode(heatmap.HeatmapColorModeScheme).Scheme("Oranges").
			Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5).Steps(64)).
		FilterValues(heatmap.NewFilterValueRangeBuilder().Le(1e-9)).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(p.unit).AxisPlacement(common.AxisPlacementLeft)).
		Tooltip(heatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle).YHistogram(true)).
		ShowLegend()
}

func (p panel) states(b *statetimeline.PanelBuilder) cog.Builder[dashboard.Panel] {
	return b.
		Mappings(p.onOff()).
		ShowValue(common.VisibilityModeNever).
		RowHeight(0.8).
		FillOpacity(80).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).
			DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
}

func (p panel) graph(b *timeseries.PanelBuilder) cog.Builder[dashboard.Panel] {
	b.Min(0).
		LineWidth(1).
		ShowPoints(common.VisibilityModeNever).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).
			DisplayMode(common.LegendDisplayModeTable).Placement(common.LegendPlacementBottom).
			Calcs([]string{"lastNotNull", "max"})).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).
			Sort(common.SortOrderDescending).HideZeros(p.kind == bars))
	if p.top != 0 {
		b.Max(p.top)
	}
	if p.limits != (limits{}) {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	switch p.kind {
	case stacked:
		b.FillOpacity(40)
	case bars:
		b.FillOpacity(80).DrawStyle(common.GraphDrawStyleBars)
	default:
		return b.FillOpacity(5)
	}
	return b.Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
}
