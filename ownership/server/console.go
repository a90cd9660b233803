package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/console"
	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// Values of Config.Console.
const (
	// ConsoleOperate lets whoever has the console open change something.
	ConsoleOperate = "operate"
	// ConsoleRead shows, and refuses what a browser sends that could change something.
	ConsoleRead = "read"
	// ConsoleOff serves no console, and refuses the same.
	ConsoleOff = "off"
)

var consoleModes = []string{"", ConsoleOperate, ConsoleRead, ConsoleOff}

// console is the mode in effect.
func (c *Config) console() string {
	if c.Console != "" {
		return c.Console
	}
	if c.httpLoopback() || c.secure() { // of those who are known, only operators operate
		return ConsoleOperate
	}
	return ConsoleRead
}

func (c *Config) checkConsole() string {
	if slices.Contains(consoleModes, c.Console) {
		return ""
	}
	return "want operate, read or off"
}

// httpLoopback tells whether only this machine reaches the HTTP port.
func (c *Config) httpLoopback() bool {
	host, err := splitAddr(c.HTTPAddr)
	return err == nil && isLoopback(host)
}

// operator tells whether who sent a browser's request may change something.
func (s *Server) operator(r *http.Request) bool {
	return s.cfg.console() == ConsoleOperate && access.FromContext(r.Context()).Role == access.Operator
}

func (s *Server) openConsole() (err error) {
	if s.cfg.console() == ConsoleOff {
		return nil
	}
	s.console, err = console.New(console.Config{
		Source: s.api, Gossip: s.gossip,
		Server: s.id, Version: s.cfg.Version, CLIServer: s.addrs.GRPC,
		Operator: s.operator,
		Logger:   s.log,
	})
	if err != nil {
		return fmt.Errorf("build console: %w", err)
	}
	return nil
}

// consoleHandler serves the console, or says that there is none.
func (s *Server) consoleHandler() http.Handler {
	if s.console != nil {
		return s.console.Handler()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "404: this server was started with --console off", http.StatusNotFound)
	})
}

// toConsole sends a browser that opens the port to the console.
func (s *Server) toConsole(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Vary", "Accept")
	if s.console == nil || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		return false
	}
	http.Redirect(w, r, console.Prefix, http.StatusFound)
	return true
}

// guarded keeps pages of other sites away from the HTTP port.
func (s *Server) guarded(next http.Handler) http.Handler {
	return console.Guard{Loopback: s.cfg.httpLoopback(), Operator: s.operator}.Wrap(next)
}
