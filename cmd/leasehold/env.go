package main

import (
	"io"
	"strings"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/api"
	"github.com/leasehold-dev/leasehold/ownership/client"
)

// env is all of the outside world that a command may touch, so that a test can
// be it. It is passed by value; flags is shared.
type env struct {
	args           []string // without the program's name
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	// environ is the whole environment, NAME=value; nil: there is none.
	environ func() []string
	// isTerminal tells whether stdin, stdout or stderr is one.
	isTerminal func(stream any) bool

	// flags are the global flags. They are set by the root command and can be
	// read once a command runs.
	flags *globals
}

// globals are the flags that every command has.
type globals struct {
	server  string
	output  outputFormat
	timeout durationFlag
	config  string
	yes     bool

	security securityFlags

	// patience is how long to go on when no server answers at all. A person
	// who has mistyped an address should not wait for the whole timeout.
	patience time.Duration
}

const defaultPatience = 2 * time.Second

// colour tells whether what goes to stdout may be coloured.
func (e env) colour() bool {
	return e.isTerminal(e.stdout) && e.getenv("NO_COLOR") == "" && e.getenv("TERM") != "dumb"
}

// json tells whether the user asked for -o json.
func (e env) json() bool { return e.flags.output == outputJSON }

// secrets are the values of the environment whose names say that they are.
func (e env) secrets() (out []string) {
	if e.environ == nil {
		return nil
	}
	for _, v := range e.environ() {
		name, value, _ := strings.Cut(v, "=")
		if api.IsSecretName(name) {
			out = append(out, value)
		}
	}
	return out
}

// connect makes a client of the cluster that --server names. Nothing is sent
// before the first call.
func (e env) connect() (*client.Client, error) { return e.connectFor(e.flags.patience) }

// connectFor is connect with another patience; 0: as long as the call's context.
func (e env) connectFor(patience time.Duration) (*client.Client, error) {
	tls, credential, err := e.security()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{
		Servers:    e.flags.server,
		Timeout:    e.flags.timeout.d,
		Patience:   patience,
		TLS:        tls,
		Credential: credential,
		UserAgent:  "leasehold-cli/" + version(),
	})
	if err != nil {
		return nil, usage("--server: %v", err)
	}
	return c, nil
}
