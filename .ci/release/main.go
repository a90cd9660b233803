// Command release makes what is handed out: for each platform an archive with the
// binary and the licences, a list of what is in it (SBOM, CycloneDX), and the
// checksums of all of them, signed where there is a key.
//
// Binary and SBOM are made twice, from two clones in different directories, the
// second without a build cache, and must be the same bit for bit. So whoever has
// the commit and the toolchain can make them too, and compare.
//
//	make release                        in dist/
//	make release KEY=release-key.pem    signed: an ed25519 key in PKCS #8, PEM
//	make third-party                    rewrites THIRD_PARTY.md
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// defaultTargets are those that handed-out binaries are made for.
const defaultTargets = "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64"

// command is the package that is built.
const command = "./cmd/leasehold"

func main() {
	var r release
	var targets string
	var thirdParty bool
	flag.StringVar(&r.root, "C", "../..", "`directory` of the module")
	flag.StringVar(&r.out, "out", "dist", "`directory` for the result, emptied first; below -C unless absolute")
	flag.StringVar(&r.version, "version", "", "`name` of the release")
	flag.StringVar(&r.toolchain, "toolchain", "", "`version` of Go, go1.26.10 say")
	flag.StringVar(&r.key, "key", "", "`file` with the key that signs")
	flag.StringVar(&targets, "targets", defaultTargets, "`platforms` to build for")
	flag.BoolVar(&thirdParty, "third-party", false, "write THIRD_PARTY.md and end")
	flag.Parse()
	r.targets = strings.Split(targets, ",")
	if err := r.run(thirdParty); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one run.
type release struct {
	root, out, version, toolchain, key string
	targets                            []string
}

func (r *release) run(thirdParty bool) error {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	r.root = root
	if !filepath.IsAbs(r.out) {
		r.out = filepath.Join(root, r.out)
	}
	if thirdParty {
		text, err := r.thirdParty()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, "THIRD_PARTY.md"), text, 0o644)
	}
	if r.version == "" || r.toolchain == "" {
		return fmt.Errorf("-version %q, -toolchain %q: want both", r.version, r.toolchain)
	}
	// Looked at first: a quarter of an hour later would be late.
	key, err := readKey(r.key)
	if err != nil {
		return err
	}
	files, err := r.build()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	sums := checksums(files)
	files["SHA256SUMS"] = sums
	if key != nil {
		files["SHA256SUMS.sig"] = sign(key, sums)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.out, name), content, 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("release: %s, each built twice with the same result:\n%s", r.out, sums)
	return nil
}
