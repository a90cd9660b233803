// Command vuln looks for known vulnerabilities in what the product calls: it is
// govulncheck with a database that needs no network once it is in the module cache.
//
//	make vuln                                    with the pinned database
//	make vuln VULNDB=golang.org/x/vulndb@latest  with the newest
//	make vuln VULNDB=file:///srv/vulndb          with a copy in a directory
//
// It fails when a vulnerable function is called, and tells the way to it. Where
// that cannot be mended yet, a line in .ci/vuln/allow lets it pass until a day:
//
//	GO-2026-0001 2027-01-31 no release has the fix; we never parse what others send
//
// A line whose day is over, or whose vulnerability is not called any more, makes
// the run fail as well.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/vuln/scan"
)

func main() {
	db := flag.String("db", "", "the database: a `module@version` of golang.org/x/vulndb, or a file:// URL")
	allow := flag.String("allow", "allow", "`file` of what may be called for now")
	dir := flag.String("C", ".", "`directory` of the module to check")
	flag.Parse()
	if err := run(*dir, *db, *allow); err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func run(dir, db, allowFile string) error {
	text, err := os.ReadFile(allowFile)
	if err != nil {
		return err
	}
	allowed, err := parseAllowed(string(text), time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", allowFile, err)
	}
	url, err := database(db)
	if err != nil {
		return err
	}
	fmt.Println("vuln: database", db)
	scanner := scan.Command(context.Background(), "-C", dir, "-db", url, "-format", "json", "./...")
	var out bytes.Buffer
	scanner.Stdout, scanner.Stderr = &out, os.Stderr
	if err := scanner.Start(); err != nil {
		return err
	}
	if err := scanner.Wait(); err != nil {
		return fmt.Errorf("scan %s: %w", dir, err)
	}
	found, goVersion, err := parseFindings(&out)
	if err != nil {
		return fmt.Errorf("what the scanner says: %w", err)
	}
	fmt.Println("vuln: checked with", goVersion)
	return judge(os.Stdout, found, allowed)
}

// database is the URL of a database.
func database(db string) (string, error) {
	if db == "" {
		return "", errors.New("-db is empty: make vuln gives it")
	}
	if strings.HasPrefix(db, "file://") {
		return db, nil
	}
	cmd := exec.Command("go", "mod", "download", "-json", db)
	cmd.Dir = os.TempDir() // outside a module, which has no need to know it
	out, err := cmd.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr != nil || module.Error != "" || err != nil {
		return "", fmt.Errorf("go mod download %s: %w", db, errors.Join(err, errors.New(module.Error)))
	}
	return "file://" + filepath.ToSlash(filepath.Join(module.Dir, "data", "osv")), nil
}

// finding is a vulnerability and the shortest way to it.
type finding struct {
	id, summary   string
	module, fixed string
	way           []string // caller first; empty: it is there, and not called
}

// parseFindings reads the messages of govulncheck. Of several findings of one
// vulnerability it keeps the one with a way to it.
func parseFindings(r io.Reader) (found []finding, goVersion string, err error) {
	summaries := map[string]string{}
	byID := map[string]finding{}
	dec := json.NewDecoder(r)
	for {
		var m struct {
			Config *struct {
				GoVersion string `json:"go_version"`
			}
			OSV     *struct{ ID, Summary string }
			Finding *struct {
				OSV   string
				Fixed string `json:"fixed_version"`
				Trace []struct{ Module, Version, Package, Function, Receiver string }
			}
		}
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, "", err
		}
		switch {
		case m.Config != nil:
			goVersion = m.Config.GoVersion
		case m.OSV != nil:
			summaries[m.OSV.ID] = m.OSV.Summary
		case m.Finding != nil && len(m.Finding.Trace) > 0:
			at := m.Finding.Trace[0]
			f := finding{id: m.Finding.OSV, module: at.Module + "@" + at.Version, fixed: m.Finding.Fixed}
			if at.Function != "" {
				for _, t := range slices.Backward(m.Finding.Trace) {
					f.way = append(f.way, strings.TrimPrefix(strings.TrimPrefix(t.Package+"."+t.Receiver+"."+t.Function, "."), ".."))
				}
			}
			if old, ok := byID[f.id]; !ok || len(old.way) == 0 || len(f.way) > 0 && len(f.way) < len(old.way) {
				byID[f.id] = f
			}
		}
	}
	if goVersion == "" {
		return nil, "", errors.New("it does not say that it has checked anything")
	}
	for _, f := range byID {
		f.summary = summaries[f.id]
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(a.id, b.id) })
	return found, goVersion, nil
}

// allowance lets a vulnerability pass until a day.
type allowance struct {
	until  string
	reason string
}

func parseAllowed(text string, now time.Time) (map[string]allowance, error) {
	allowed := map[string]allowance{}
	for n, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		id, rest, _ := strings.Cut(line, " ")
		until, reason, _ := strings.Cut(strings.TrimSpace(rest), " ")
		day, err := time.Parse(time.DateOnly, until)
		switch {
		case !strings.HasPrefix(id, "GO-") || err != nil || strings.TrimSpace(reason) == "":
			return nil, fmt.Errorf("line %d: want an id, the last day as 2006-01-02, and a reason", n+1)
		case now.After(day.AddDate(0, 0, 1)):
			return nil, fmt.Errorf("line %d: %s was allowed until %s", n+1, id, until)
		}
		allowed[id] = allowance{until, strings.TrimSpace(reason)}
	}
	return allowed, nil
}

// judge prints what was found, and is an error where that is not allowed.
func judge(w io.Writer, found []finding, allowed map[string]allowance) error {
	var called, idle int
	for _, f := range found {
		fixed := "no release has a fix"
		if f.fixed != "" {
			fixed = "fixed in " + f.fixed
		}
		a, ok := allowed[f.id]
		switch {
		case len(f.way) == 0:
			idle++
			fmt.Fprintf(w, "not called   %s in %s, %s: %s\n", f.id, f.module, fixed, f.summary)
			continue
		case ok:
			fmt.Fprintf(w, "allowed      %s in %s until %s: %s\n", f.id, f.module, a.until, a.reason)
		default:
			called++
			fmt.Fprintf(w, "CALLED       %s in %s, %s: %s\n", f.id, f.module, fixed, f.summary)
			for _, step := range f.way {
				fmt.Fprintln(w, "             ", step)
			}
		}
		delete(allowed, f.id)
	}
	fmt.Fprintf(w, "vuln: %d called, %d in modules that are needed and not called\n", called, idle)
	var errs []error
	if called > 0 {
		errs = append(errs, fmt.Errorf("%d vulnerabilities are called: take the release with the fix, or say in .ci/vuln/allow why not", called))
	}
	for id := range allowed {
		errs = append(errs, fmt.Errorf("%s is not called any more: take it out of the list of what is allowed", id))
	}
	return errors.Join(errs...)
}
