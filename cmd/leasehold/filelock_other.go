//go:build !unix

package main

import "os"

// lockFile does nothing where there is no flock: whoever saves two backups
// under one name at once gets one of them, or a file that verify refuses.
func lockFile(*os.File) error { return nil }

// syncParent has no meaning where directories cannot be opened.
func syncParent(string) error { return nil }
