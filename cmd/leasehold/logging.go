package main

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// logFlags are the log settings of the commands that run for long.
type logFlags struct {
	level  levelFlag
	format logFormat
}

func (l *logFlags) define(cmd *cobra.Command, level slog.Level) {
	l.flags(cmd.Flags(), level)
	l.complete(cmd)
}

func (*logFlags) complete(cmd *cobra.Command) {
	complete(cmd, "log-level", fixed("debug", "info", "warn", "error"))
	complete(cmd, "log-format", fixed("auto", "text", "json"))
}

func (l *logFlags) flags(f *pflag.FlagSet, level slog.Level) {
	l.level.v = new(slog.LevelVar)
	l.level.v.Set(level)
	f.Var(&l.level, "log-level", "least `level` of what is logged: debug, info, warn or error (env LEASEHOLD_LOG_LEVEL)")
	f.Var(&l.format, "log-format", "text, json, or auto: text on a terminal, json else (env LEASEHOLD_LOG_FORMAT)")
	layered(f, "log-level", "log-format")
}

// logger writes to stderr, so that stdout stays the command's result. It
// follows the level as it is set later.
func (l *logFlags) logger(e env) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.level.v}
	if l.format == "text" || l.format != "json" && e.isTerminal(e.stderr) {
		return slog.New(slog.NewTextHandler(e.stderr, opts))
	}
	return slog.New(slog.NewJSONHandler(e.stderr, opts))
}

// levelFlag is a level that can be changed while the logger is in use.
type levelFlag struct{ v *slog.LevelVar }

// String implements pflag.Value.
func (l *levelFlag) String() string {
	if l.v == nil {
		return ""
	}
	return strings.ToLower(l.v.Level().String())
}

// Type implements pflag.Value.
func (*levelFlag) Type() string { return "level" }

// Set implements pflag.Value.
func (l *levelFlag) Set(s string) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("want debug, info, warn or error")
	}
	l.v.Set(level)
	return nil
}

// logFormat is auto (or empty), text or json.
type logFormat string

// String implements pflag.Value.
func (f *logFormat) String() string {
	if *f == "" {
		return "auto"
	}
	return string(*f)
}

// Type implements pflag.Value.
func (*logFormat) Type() string { return "format" }

// Set implements pflag.Value.
func (f *logFormat) Set(s string) error {
	switch s {
	case "auto", "text", "json":
		*f = logFormat(s)
		return nil
	}
	return fmt.Errorf("want auto, text or json")
}
