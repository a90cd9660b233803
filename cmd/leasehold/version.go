package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/leasehold-dev/leasehold/raftstore/state"
	"github.com/spf13/cobra"
)

// release is set by the linker when a release is built.
var release string

// version is the release, or what the build says about itself.
func version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// commit is what the binary was built from, or "" where the build did not say.
func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	revision, changed := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "-dirty"
		}
	}
	if revision == "" {
		return ""
	}
	return revision + changed
}

// versionResult is what an operator compares before an upgrade: servers of
// different formats and feature levels can be in one cluster only while its
// level is known to all.
type versionResult struct {
	Version  string         `json:"version"`
	Commit   string         `json:"commit"`
	Go       string         `json:"go"`
	Platform string         `json:"platform"`
	Feature  uint32         `json:"feature"`
	Formats  versionFormats `json:"formats"`
}

type versionFormats struct {
	Batch    int `json:"batch"`
	Snapshot int `json:"snapshot"`
	Backup   int `json:"backup"`
}

func thisVersion() versionResult {
	v := versionResult{
		Version: version(), Commit: commit(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Feature: uint32(state.MaxFeature),
	}
	v.Formats.Batch, v.Formats.Snapshot = state.Formats()
	v.Formats.Backup = backup.Format()
	return v
}

func newVersionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this binary, and what it can read and write",
		Long: `Print the version of this binary. The feature level is the highest that it knows;
that of a cluster (feature_level in leasehold status -o json) is raised once all
its servers know a higher one. Formats are those of log entries (batch), snapshots and backups.`,
		Example: "  leasehold version\n  leasehold version -o json",
		Args:    exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			v := thisVersion()
			if e.json() {
				return printJSON(e.stdout, v)
			}
			built := v.Go + ", " + v.Platform
			if v.Commit != "" {
				built += ", commit " + v.Commit[:min(12, len(v.Commit))]
			}
			return e.say("leasehold %s (%s)\n%s", v.Version, built, v.compatibility())
		},
	}
}

func (v versionResult) compatibility() string {
	return fmt.Sprintf("feature level %d, batch format %d, snapshot format %d, backup format %d\n%s",
		v.Feature, v.Formats.Batch, v.Formats.Snapshot, v.Formats.Backup, upgradeOrder)
}

// upgradeOrder is what holds for every upgrade.
const upgradeOrder = "upgrade servers before workers, one server at a time, the leader last; see deploy/OPERATIONS.md"
