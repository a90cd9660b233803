package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
)

// logFlags are the log settings of the commands that run for long.
type logFlags struct {
	level  slog.Level
	format logFormat
}

func (l *logFlags) define(cmd *cobra.Command, level slog.Level) {
	l.level = level
	f := cmd.Flags()
	f.TextVar(&l.level, "log-level", level, "least `level` of what is logged: debug, info, warn or error (env LEASEHOLD_LOG_LEVEL)")
	f.Var(&l.format, "log-format", "text, json, or auto: text on a terminal, json else (env LEASEHOLD_LOG_FORMAT)")
	layered(f, "log-level", "log-format")
	complete(cmd, "log-level", fixed("debug", "info", "warn", "error"))
	complete(cmd, "log-format", fixed("auto", "text", "json"))
}

// logger writes to stderr, so that stdout stays the command's result.
func (l *logFlags) logger(e env) *slog.Logger {
	opts := &slog.HandlerOptions{Level: l.level}
	if l.format == "text" || l.format != "json" && e.isTerminal(e.stderr) {
		return slog.New(slog.NewTextHandler(e.stderr, opts))
	}
	return slog.New(slog.NewJSONHandler(e.stderr, opts))
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
