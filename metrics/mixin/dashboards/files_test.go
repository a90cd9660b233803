package dashboards

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
)

// TestFilesAreCommitted: deploy/grafana holds what this package makes, and
// nothing else.
func TestFilesAreCommitted(t *testing.T) {
	made, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	have := committedFiles(t)
	for name, text := range made {
		if !bytes.Equal(have[name], text) {
			t.Errorf("%s/%s is not what the generator makes: run `make generate` and commit the result", Folder, name)
		}
	}
	for name := range have {
		if made[name] == nil {
			t.Errorf("%s/%s is made by nobody", Folder, name)
		}
	}
	if again, err := Files(); err != nil || !maps.EqualFunc(made, again, bytes.Equal) {
		t.Errorf("two runs make different files (%v)", err)
	}
}

// TestFourDashboards: each has its own lasting uid, is found by the links of the
// others, and lets choose source, cluster and keyspace.
func TestFourDashboards(t *testing.T) {
	boards := committed(t)
	if got := slices.Sorted(maps.Keys(boards)); !slices.Equal(got, []string{"overview", "ownership", "servers", "workers"}) {
		t.Fatalf("dashboards are %v", got)
	}
	for name, b := range boards {
		if want := "leasehold-" + name; b.UID != want {
			t.Errorf("%s: uid is %q, want %q: links and bookmarks hold it", name, b.UID, want)
		}
		if b.SchemaVersion < 36 || b.Title == "" || b.Description == "" {
			t.Errorf("%s: schemaVersion %d, title %q, description %q", name, b.SchemaVersion, b.Title, b.Description)
		}
		if !slices.Contains(b.Tags, tag) || len(b.Links) != 1 || b.Links[0].Type != "dashboards" ||
			!slices.Contains(b.Links[0].Tags, tag) || !b.Links[0].IncludeVars || !b.Links[0].KeepTime {
			t.Errorf("%s: tags %v and links %+v do not join the dashboards", name, b.Tags, b.Links)
		}
		var variables []string
		for _, v := range b.Templating.List {
			variables = append(variables, v.Name)
			if v.Type == "query" && (!v.IncludeAll || v.AllValue != ".*") {
				t.Errorf("%s: variable %s: all must be .*, which matches also what has no such label", name, v.Name)
			}
		}
		if !slices.Equal(variables, []string{"datasource", "cluster", "keyspace"}) {
			t.Errorf("%s: variables are %v", name, variables)
		}
		if len(b.Annotations.List) != 1 || !strings.Contains(b.Annotations.List[0].Expr, "raft_is_leader") {
			t.Errorf("%s: leader changes are not marked: %+v", name, b.Annotations.List)
		}
	}
}

// TestLayout: ids are unique, no two panels overlap, each row is filled to its
// end and asks a question, and links lead to dashboards that exist.
func TestLayout(t *testing.T) {
	boards := committed(t)
	uids := make(map[string]bool)
	for _, b := range boards {
		uids[b.UID] = true
	}
	for name, b := range boards {
		ids := make(map[int]bool)
		taken := make(map[[2]int]string)
		depth := 0
		for _, p := range b.Panels {
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: %q has the id %d, which is 0 or another's", name, p.Title, p.ID)
			}
			ids[p.ID] = true
			g := p.GridPos
			if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
				t.Errorf("%s: %q lies at %+v, outside 24 columns", name, p.Title, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" {
						t.Fatalf("%s: %q lies over %q", name, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			depth = max(depth, g.Y+g.H)
			if p.Type == "row" && !strings.HasSuffix(p.Title, "?") {
				t.Errorf("%s: row %q asks no question", name, p.Title)
			}
			for _, l := range p.Links {
				path, _, _ := strings.Cut(strings.TrimPrefix(l.URL, "/d/"), "?")
				if !uids[path] {
					t.Errorf("%s: %q links to %s, which does not exist", name, p.Title, l.URL)
				}
			}
		}
		for y := range depth {
			if taken[[2]int{23, y}] == "" {
				t.Errorf("%s: line %d of the grid ends before column 24", name, y)
			}
		}
	}
}
