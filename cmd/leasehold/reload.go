package main

import (
	"bytes"
	"log/slog"
	"time"

	"github.com/spf13/pflag"
)

// reloadable settings take effect while the server runs. Everything else is
// fixed at its start: addresses and identity are in the hands of others, and
// timeouts must be the same for a whole term.
var reloadable = map[string]bool{"log-level": true, "join": true}

// reloader reads the settings of a running server anew.
type reloader struct {
	e       env
	known   map[string]bool
	running *serverFlags
	key     []byte // the gossip key in use
	setJoin func([]string) error
	readTLS func() error       // nil: there is no TLS
	done    func(at time.Time) // is told of each reload that was not refused
	log     *slog.Logger
}

// settingChange is a setting that is no longer what it was. Values are for
// logs: no secrets.
type settingChange struct{ key, old, new, from string }

func (c settingChange) attrs() []any {
	return []any{"key", c.key, "old", c.old, "new", c.new, "from", c.from}
}

// reload applies what can be applied and names what cannot. All or nothing:
// settings with a fault change nothing, and never end the server.
func (r *reloader) reload() error {
	fresh, changes, err := r.read()
	if err != nil {
		r.log.Error("settings were not reloaded, nothing has changed", "file", r.e.flags.config, "error", err)
		return err
	}
	if r.readTLS != nil {
		if err := r.readTLS(); err != nil {
			r.log.Error("settings were not reloaded, nothing has changed", "file", r.e.flags.config, "error", err)
			return err
		}
	}
	if err := r.setJoin(fresh.cfg.Join); err != nil {
		r.log.Error("settings were not reloaded, nothing has changed", "file", r.e.flags.config, "error", err)
		return err
	}
	r.running.cfg.Join = fresh.cfg.Join
	r.done(time.Now())
	// What has changed is told at the lower of both levels, so that a change to
	// warn does not hide itself.
	level, wanted := r.running.logs.level.v, fresh.logs.level.v.Level()
	level.Set(min(level.Level(), wanted, slog.LevelInfo))
	applied := r.tell(changes)
	r.log.Info("settings reloaded", "file", r.e.flags.config, "applied", applied, "needs_restart", len(changes)-applied)
	level.Set(wanted)
	return nil
}

// read reads all layers into new flags and checks them as a start would. What
// was on the command line stays.
func (r *reloader) read() (*serverFlags, []settingChange, error) {
	fresh := &serverFlags{}
	set := pflag.NewFlagSet("server", pflag.ContinueOnError)
	fresh.flags(set)
	r.running.each(func(f *pflag.Flag) {
		if f.Changed {
			copyValue(set.Lookup(f.Name), f)
		}
	})
	faults := fillIn(set, r.e, r.known)
	cfg, err := fresh.config(r.e)
	if err := usageErrors(faults, err); err != nil {
		return nil, nil, err
	}
	return fresh, r.compare(fresh, cfg.GossipKey), nil
}

// compare lists what differs from the running settings.
func (r *reloader) compare(fresh *serverFlags, key []byte) []settingChange {
	var changes []settingChange
	r.running.each(func(f *pflag.Flag) {
		now := fresh.set.Lookup(f.Name)
		c := settingChange{fileKey(f.Name), shown(f), shown(now), origin(now)}
		switch {
		case f.Value.String() != now.Value.String():
			changes = append(changes, c)
		case f.Name == "gossip-key-file" && !bytes.Equal(key, r.key):
			c.old, c.new = c.old+" as it was", c.new+" with another key in it; it is for the first start: see leasehold gossip keyring"
			changes = append(changes, c)
		}
	})
	return changes
}

// tell logs each change and counts those that have been applied.
func (r *reloader) tell(changes []settingChange) (applied int) {
	for _, c := range changes {
		if reloadable[flagName(c.key)] {
			applied++
			r.log.Info("setting changed", c.attrs()...)
		} else {
			r.log.Warn("setting needs a restart", c.attrs()...)
		}
	}
	return applied
}

// copyValue gives one flag what another was given on the command line.
func copyValue(to, from *pflag.Flag) {
	to.Changed = true
	if list, ok := from.Value.(pflag.SliceValue); ok {
		_ = to.Value.(pflag.SliceValue).Replace(list.GetSlice())
		return
	}
	_ = to.Value.Set(from.Value.String()) // it was read from such a text
}
