package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

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

func newVersionCommand(e env) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Example: "  leasehold version\n  leasehold version -o json",
		Args:    exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{version(), runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			if e.json() {
				return printJSON(e.stdout, v)
			}
			_, err := fmt.Fprintf(e.stdout, "leasehold %s (%s, %s)\n", v.Version, v.Go, v.Platform)
			return err
		},
	}
}
