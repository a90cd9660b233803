package server

import (
	"context"
	"fmt"
	"time"
)

// SetJoin replaces Config.Join while the server works. A list with a fault
// changes nothing.
func (s *Server) SetJoin(addrs []string) error {
	for _, a := range addrs {
		if _, err := splitAddr(a); err != nil {
			return &SettingError{Flag: "--join", Value: a, Limit: err.Error()}
		}
	}
	if err := s.gossip.SetSeeds(addrs); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	return nil
}

// SettingsRead notes for the metrics when the settings in use were read. New
// does so too.
func (s *Server) SettingsRead(at time.Time) { s.metrics.SettingsRead(at) }

// Probe returns nil once Raft's main loop has answered: the server may have no
// leader, but it works. For a watchdog.
func (s *Server) Probe(ctx context.Context) error { return s.store.Probe(ctx) }
