package dashboards

import (
	"bytes"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// TestGrafanaKnowsEveryField: the committed files hold nothing that Grafana's
// own model has no place for, and what it demands is there.
func TestGrafanaKnowsEveryField(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	for name, text := range committedFiles(t) {
		if fault := strictly(text); fault != "" {
			t.Errorf("%s: %s", name, fault)
		}
		for _, field := range []string{`"gridPos"`, `"legendFormat"`, `"lineWidth"`, `"annotations"`} {
			if bytes.Contains(text, []byte(field)) && strictly(bytes.Replace(text, []byte(field), []byte(`"unheard"`), 1)) == "" {
				t.Errorf("%s: nobody notices when %s has another name", name, field)
			}
		}
	}
}

// strictly decodes a dashboard and says what is wrong with it. The decoder
// returns an error in any case, whose text is empty when all is well.
func strictly(text []byte) string {
	var d dashboard.Dashboard
	if err := d.UnmarshalJSONStrict(text); err != nil && err.Error() != "" {
		return err.Error()
	}
	if err := d.Validate(); err != nil {
		return err.Error()
	}
	return ""
}
