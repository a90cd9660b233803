package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"time"
	"unicode"
)

// archive is a tar.gz in the making. Its methods may be called from any
// goroutine; the first error is kept for close.
type archive struct {
	mu    sync.Mutex
	file  *os.File
	gzip  *gzip.Writer
	tar   *tar.Writer
	dir   string // all names are below it
	files int
	bytes int64 // before compression
	err   error
}

// newArchive makes the file, which must not be there yet.
func newArchive(name string) (*archive, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return nil, usage("%s is there already: name another with -O", name)
	}
	if err != nil {
		return nil, fmt.Errorf("make the archive: %w", err)
	}
	z := gzip.NewWriter(f)
	dir := strings.TrimSuffix(strings.TrimSuffix(path.Base(name), ".gz"), ".tar")
	return &archive{file: f, gzip: z, tar: tar.NewWriter(z), dir: safeName(dir)}, nil
}

// add writes one file.
func (a *archive) add(name string, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(a.dir, name), Mode: int64(fileMode), Size: int64(len(data)), ModTime: time.Now()}
	if a.err = a.tar.WriteHeader(h); a.err == nil {
		_, a.err = a.tar.Write(data)
	}
	a.files++
	a.bytes += int64(len(data))
}

// json writes any value.
func (a *archive) json(name string, v any) {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		raw = []byte(err.Error())
	}
	a.add(name, append(raw, '\n'))
}

// taken is what has been written so far.
func (a *archive) taken() (files int, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.files, a.bytes
}

// close ends the archive and the file.
func (a *archive) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.err, a.tar.Close(), a.gzip.Close(), a.file.Close())
}

// safeName makes one element of a path of any text.
func safeName(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
	if s == "" || s == "." || s == ".." {
		return "_"
	}
	return s
}

// safePath keeps a name that a server gave below its directory.
func safePath(name string) string {
	var parts []string
	for part := range strings.SplitSeq(name, "/") {
		parts = append(parts, safeName(part))
	}
	return path.Join(parts...)
}
