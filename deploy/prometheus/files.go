// Package prometheus holds the files of this directory that a Prometheus needs
// to look at a cluster, for the binary, which must do without the repository.
// It starts no goroutine.
package prometheus

import "embed"

// Files are prometheus.yml and the rules that it names.
//
//go:embed *.yml
var Files embed.FS
