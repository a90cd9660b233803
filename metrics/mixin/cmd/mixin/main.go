// Command mixin writes what Leasehold brings for Prometheus and Grafana into
// deploy, below the root of the repository that is its argument.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leasehold-dev/leasehold/metrics/mixin/dashboards"
	"github.com/leasehold-dev/leasehold/metrics/mixin/rules"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mixin:", err)
		os.Exit(1)
	}
}

// generators make the files of one folder each, by file name.
var generators = []struct {
	folder string
	files  func() (map[string][]byte, error)
}{
	{dashboards.Folder, dashboards.Files},
	{rules.Folder, rules.Files},
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("give the root of the repository")
	}
	for _, g := range generators {
		files, err := g.files()
		if err != nil {
			return err
		}
		for name, text := range files {
			path := filepath.Join(args[0], g.folder, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, text, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
