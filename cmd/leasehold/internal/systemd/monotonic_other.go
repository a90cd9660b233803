//go:build !linux

package systemd

import "time"

// There is no systemd elsewhere.
func monotonic() time.Duration { return 0 }
