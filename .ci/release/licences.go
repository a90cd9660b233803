package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a module whose code is in a binary of the product.
type module struct {
	Path, Version, Dir string
	licences           []string // SPDX
	texts              []string // names of files with licences and notices
}

// standard is the library that comes with Go.
const standard = "std"

// modules are those of all targets together, with their licences.
func (r *release) modules() ([]module, error) {
	all := map[string]module{}
	for _, target := range r.targets {
		goos, goarch, _ := strings.Cut(target, "/")
		out, err := run(r.root, []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch}, "go", "list", "-deps", "-json=Module", command)
		if err != nil {
			return nil, err
		}
		dec := json.NewDecoder(bytes.NewReader(out))
		for {
			var p struct {
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Module != nil && !p.Module.Main {
				all[p.Module.Path] = module{Path: p.Module.Path, Version: p.Module.Version, Dir: p.Module.Dir}
			}
		}
	}
	goroot, err := run(r.root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	all[standard] = module{Path: standard, Version: r.toolchain, Dir: strings.TrimSpace(string(goroot))}
	mods := make([]module, 0, len(all))
	for _, path := range slices.Sorted(maps.Keys(all)) {
		m := all[path]
		if err := m.read(); err != nil {
			return nil, err
		}
		mods = append(mods, m)
	}
	return mods, nil
}

var isLicence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)`)

// read finds the files with licences, and which they are.
func (m *module) read() error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() || !isLicence.MatchString(e.Name()) {
			continue
		}
		m.texts = append(m.texts, e.Name())
		text, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		for _, id := range classify(string(text)) {
			if !slices.Contains(m.licences, id) {
				m.licences = append(m.licences, id)
			}
		}
	}
	slices.Sort(m.licences)
	if len(m.licences) == 0 {
		return fmt.Errorf("%s: no licence that is known here in %q: read it, and decide", m.Path, m.texts)
	}
	return nil
}

// known are the licences that what we hand out may have parts under, each with words
// that stand in no other.
var known = []struct{ id, words string }{
	{"Apache-2.0", "apache license version 2.0, january 2004"},
	{"Apache-2.0", "licensed under the apache license, version 2.0"},
	{"MPL-2.0", "mozilla public license"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "endorse or promote products derived from this software"},
	{"BSD-2-Clause", "redistributions in binary form must reproduce the above copyright"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"blessing", "may you find forgiveness for yourself and forgive others"},
	{"public domain", "dedicated to the public domain"},
}

var space = regexp.MustCompile(`\s+`)

func classify(text string) (ids []string) {
	text = space.ReplaceAllString(strings.ToLower(text), " ")
	for _, k := range known {
		if !strings.Contains(text, k.words) || slices.Contains(ids, k.id) || k.id == "BSD-2-Clause" && slices.Contains(ids, "BSD-3-Clause") {
			continue
		}
		ids = append(ids, k.id)
	}
	return ids
}

// thirdParty is THIRD_PARTY.md. It names no versions: go.mod has them.
func (r *release) thirdParty() ([]byte, error) {
	mods, err := r.modules()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# Parts by others\n\n" +
		"The modules whose code is in the binaries, with the licences that their files name; `make third-party` writes this list, and go.mod has the\n" +
		"versions. The archives of a release have the texts and notices in `THIRD_PARTY_LICENSES.txt`, and the SBOM beside them has each part with its\n" +
		"version and checksum.\n\n" +
		"Under MPL-2.0, who gets the binary may have the source of those modules, with our changes: there are none. The source is the module at the\n" +
		"version that the SBOM names, as `go mod download MODULE@VERSION` fetches it. Their notices stay as they are.\n\n" +
		"| module | licences |\n|---|---|\n")
	for _, m := range mods {
		name := m.Path
		if name == standard {
			name = "Go's standard library"
		}
		fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(m.licences, ", "))
	}
	return b.Bytes(), nil
}

// notices are the texts of all licences, for the archives.
func (r *release) notices() ([]byte, error) {
	mods, err := r.modules()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("Leasehold has parts by others. Their licences and notices follow. The source of\n" +
		"each is the Go module of that version: go mod download MODULE@VERSION\n")
	for _, m := range mods {
		for _, name := range m.texts {
			text, err := os.ReadFile(filepath.Join(m.Dir, name))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "\n%s\n%s@%s: %s\n\n%s\n", strings.Repeat("=", 80), m.Path, m.Version, name, bytes.TrimSpace(text))
		}
	}
	return b.Bytes(), nil
}
