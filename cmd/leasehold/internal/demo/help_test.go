package demo

import (
	"os"
	"path/filepath"
)

func mkdirFor(file string) error { return os.MkdirAll(filepath.Dir(file), 0o700) }
