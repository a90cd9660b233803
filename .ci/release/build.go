package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// sbomTool is pinned by go.mod, with its checksums.
const sbomTool = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod"

// build returns the files of the release by name. All comes from the commit: what
// is in the directory beside it has no part.
func (r *release) build() (map[string][]byte, error) {
	changed, err := r.git("status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if changed != "" {
		return nil, fmt.Errorf("a release is built from a commit, and these are not in one:\n%s", changed)
	}
	commit, err := r.git("log", "-1", "--format=%H")
	if err != nil {
		return nil, err
	}
	seconds, err := r.git("log", "-1", "--format=%ct")
	if err != nil {
		return nil, err
	}
	var at int64
	if _, err := fmt.Sscan(seconds, &at); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "release")
	if err != nil {
		return nil, err
	}
	defer removeAll(dir)
	tool := filepath.Join(dir, "cyclonedx")
	if _, err := run(filepath.Join(r.root, ".ci/release"), nil, "go", "build", "-o", tool, sbomTool); err != nil {
		return nil, err
	}
	notices, err := r.notices()
	if err != nil {
		return nil, err
	}
	licence, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	// Two places of different depth, and names of different length.
	first := &clone{dir: filepath.Join(dir, "a")}
	second := &clone{dir: filepath.Join(dir, "second", "clone", "leasehold"), env: []string{"GOCACHE=" + filepath.Join(dir, "cache"), "TZ=Asia/Kathmandu", "LC_ALL=C"}}
	for _, c := range []*clone{first, second} {
		c.version, c.toolchain, c.sbom = r.version, r.toolchain, tool
		if _, err := run(r.root, nil, "git", "clone", "-q", "--no-local", ".", c.dir); err != nil {
			return nil, err
		}
		if _, err := run(c.dir, nil, "git", "checkout", "-q", "--detach", commit); err != nil {
			return nil, err
		}
	}
	files := map[string][]byte{}
	for _, target := range r.targets {
		begin := time.Now()
		made, err := first.build(target)
		if err != nil {
			return nil, err
		}
		again, err := second.build(target)
		if err != nil {
			return nil, err
		}
		if err := made.same(again); err != nil {
			return nil, fmt.Errorf("%s: %w", target, err)
		}
		name := "leasehold-" + r.version + "-" + strings.ReplaceAll(target, "/", "-")
		packed, err := pack(time.Unix(at, 0), []member{
			{name + "/leasehold", 0o755, made.binary}, {name + "/LICENSE", 0o644, licence}, {name + "/THIRD_PARTY_LICENSES.txt", 0o644, notices},
		})
		if err != nil {
			return nil, err
		}
		maps.Copy(files, map[string][]byte{name + ".tar.gz": packed, name + ".cdx.json": made.sbom})
		fmt.Printf("release: %s twice, %.0f s\n", target, time.Since(begin).Seconds())
	}
	return files, nil
}

// clone is a place to build in.
type clone struct {
	dir                      string
	env                      []string
	version, toolchain, sbom string
}

// product is what a build makes for a target.
type product struct{ binary, sbom []byte }

func (p *product) same(q *product) error {
	for _, part := range []struct {
		what string
		a, b []byte
	}{{"binary", p.binary, q.binary}, {"SBOM", p.sbom, q.sbom}} {
		if bytes.Equal(part.a, part.b) {
			continue
		}
		at := 0
		for at < min(len(part.a), len(part.b)) && part.a[at] == part.b[at] {
			at++
		}
		return fmt.Errorf("the two builds differ: the %s has %d and %d bytes, and is the same up to byte %d", part.what, len(part.a), len(part.b), at)
	}
	return nil
}

func (c *clone) build(target string) (*product, error) {
	goos, goarch, ok := strings.Cut(target, "/")
	if !ok {
		return nil, fmt.Errorf("target %q: want linux/amd64, say", target)
	}
	// All that can change the code that comes out, as it is for nobody in particular.
	env := append([]string{
		"GOTOOLCHAIN=" + c.toolchain, "GOFLAGS=-mod=readonly", "CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch,
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off",
	}, c.env...)
	binary, sbom := filepath.Join(c.dir, "bin", goos, goarch, "leasehold"), filepath.Join(c.dir, "bin", goos, goarch, "sbom.json")
	if _, err := run(c.dir, env, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags", "-s -w -buildid= -X main.release="+c.version, "-o", binary, command); err != nil {
		return nil, err
	}
	if _, err := run(c.dir, env, c.sbom, "app", "-json", "-noserial", "-notimestamp", "-licenses", "-std", "-main", command, "-output", sbom, "."); err != nil {
		return nil, err
	}
	var p product
	var errs [2]error
	p.binary, errs[0] = os.ReadFile(binary)
	p.sbom, errs[1] = os.ReadFile(sbom)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	var err error
	p.sbom, err = withoutToolHashes(p.sbom)
	return &p, err
}

var toolHashes = regexp.MustCompile(`("name": "cyclonedx-gomod",\s*"version": "[^"]*",)\s*"hashes": \[[^\]]*\],`)

// withoutToolHashes takes out of an SBOM what tells one build of the tool that made
// it from another: the tool is built here, and is not the same on two machines.
func withoutToolHashes(sbom []byte) ([]byte, error) {
	if n := len(toolHashes.FindAllIndex(sbom, -1)); n != 1 {
		return nil, fmt.Errorf("the SBOM has the hashes of its tool %d times, want 1: has cyclonedx-gomod changed?", n)
	}
	return toolHashes.ReplaceAll(sbom, []byte("$1")), nil
}

func (r *release) git(args ...string) (string, error) {
	out, err := run(r.root, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}

// run runs a command and returns what it prints.
func run(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, said.Bytes())
	}
	return out, nil
}

// removeAll also removes a module cache's directories, which may not be written.
func removeAll(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
	}
}
