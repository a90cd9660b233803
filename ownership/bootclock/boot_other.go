//go:build !linux

package bootclock

func boot() Clock { return Monotonic() }
