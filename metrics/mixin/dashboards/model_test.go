package dashboards

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

// The parts of Grafana's model that the tests look at. They are read from the
// committed files, since that is what an operator imports.
type (
	modelBoard struct {
		UID           string       `json:"uid"`
		Title         string       `json:"title"`
		Description   string       `json:"description"`
		Tags          []string     `json:"tags"`
		SchemaVersion int          `json:"schemaVersion"`
		Panels        []modelPanel `json:"panels"`
		Links         []modelLink  `json:"links"`
		Templating    struct {
			List []modelVariable `json:"list"`
		} `json:"templating"`
		Annotations struct {
			List []struct {
				Name string `json:"name"`
				Expr string `json:"expr"`
			} `json:"list"`
		} `json:"annotations"`
	}
	modelPanel struct {
		ID          int           `json:"id"`
		Type        string        `json:"type"`
		Title       string        `json:"title"`
		Description string        `json:"description"`
		Datasource  modelSource   `json:"datasource"`
		GridPos     modelPlace    `json:"gridPos"`
		Targets     []modelTarget `json:"targets"`
		Links       []modelLink   `json:"links"`
		FieldConfig struct {
			Defaults struct {
				Unit string `json:"unit"`
			} `json:"defaults"`
			Overrides []modelOverride `json:"overrides"`
		} `json:"fieldConfig"`
		row string // the question above it
	}
	modelOverride struct {
		Matcher struct {
			Options string `json:"options"`
		} `json:"matcher"`
	}
	modelPlace  struct{ H, W, X, Y int }
	modelSource struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	modelTarget struct {
		RefID        string      `json:"refId"`
		Expr         string      `json:"expr"`
		LegendFormat string      `json:"legendFormat"`
		Format       string      `json:"format"`
		Instant      bool        `json:"instant"`
		Range        bool        `json:"range"`
		Datasource   modelSource `json:"datasource"`
	}
	modelLink struct {
		Type        string   `json:"type"`
		Tags        []string `json:"tags"`
		URL         string   `json:"url"`
		IncludeVars bool     `json:"includeVars"`
		KeepTime    bool     `json:"keepTime"`
	}
	modelVariable struct {
		Name       string          `json:"name"`
		Type       string          `json:"type"`
		Query      json.RawMessage `json:"query"`
		AllValue   string          `json:"allValue"`
		IncludeAll bool            `json:"includeAll"`
	}
)

// committed reads the dashboards of deploy/grafana, by file name.
func committed(t *testing.T) map[string]modelBoard {
	t.Helper()
	boards := make(map[string]modelBoard)
	for name, text := range committedFiles(t) {
		var b modelBoard
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		boards[strings.TrimSuffix(name, ".json")] = b
	}
	return boards
}

func committedFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := make(map[string][]byte)
	paths, err := filepath.Glob(filepath.Join(root, Folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = text
	}
	return files
}

// panels returns those with queries, each with the question of its row.
func (b modelBoard) panels() []modelPanel {
	var list []modelPanel
	question := ""
	for _, p := range b.Panels {
		if p.Type == "row" {
			question = p.Title
			continue
		}
		p.row = question
		list = append(list, p)
	}
	return list
}
