package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Settings come in four layers: flag, LEASEHOLD_* in the environment, the YAML
// file of --config, the default. Only flags that are marked as layered can be
// set below the command line; what a single command is asked to do, such as
// the TTL of a new keyspace, should not come out of a file.

const (
	layeredKey = "leasehold_layered"
	originKey  = "leasehold_origin" // where the value came from, for messages
	envPrefix  = "LEASEHOLD_"
)

// layered marks flags that can also be set in the environment and the file.
func layered(f *pflag.FlagSet, names ...string) {
	for _, name := range names {
		if err := f.SetAnnotation(name, layeredKey, nil); err != nil {
			panic(err) // a flag that was never defined: a bug
		}
	}
}

func isLayered(f *pflag.Flag) bool {
	_, ok := f.Annotations[layeredKey]
	return ok
}

func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func fileKey(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// applyLayers fills in the flags of cmd that the command line left alone. An
// empty environment variable counts as not set.
func applyLayers(e env, cmd *cobra.Command) error {
	if !cmd.Flags().Changed("config") {
		e.flags.config = e.getenv(envPrefix + "CONFIG")
	}
	file := map[string]string{}
	if e.flags.config != "" {
		var err error
		if file, err = readConfig(e.flags.config, knownKeys(cmd.Root())); err != nil {
			return &usageError{err}
		}
	}
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || !isLayered(f) {
			return
		}
		value, origin := e.getenv(envName(f.Name)), envName(f.Name)
		if value == "" {
			var ok bool
			if value, ok = file[fileKey(f.Name)]; !ok {
				return
			}
			origin = fmt.Sprintf("%s in %s", fileKey(f.Name), e.flags.config)
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, usage("%s: %v", origin, err))
			return
		}
		f.Annotations[originKey] = []string{origin}
	})
	if f := cmd.Flags().Lookup("timeout"); f != nil && origin(f) != "default" {
		e.flags.patience = 0 // who names a time wants all of it
	}
	return errors.Join(errs...)
}

// origin says where the value of a flag came from.
func origin(f *pflag.Flag) string {
	switch {
	case f.Changed:
		return "--" + f.Name
	case len(f.Annotations[originKey]) > 0:
		return f.Annotations[originKey][0]
	}
	return "default"
}

// knownKeys are all keys that the file may have, whichever command reads it.
func knownKeys(root *cobra.Command) map[string]bool {
	known := map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if isLayered(f) {
				known[fileKey(f.Name)] = true
			}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return known
}

// readConfig reads a flat YAML map. Lists are joined by commas, as on the
// command line. Unknown and repeated keys are errors with their line.
func readConfig(path string, known map[string]bool) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	var doc yaml.Node
	if err := yaml.NewDecoder(io.LimitReader(f, 1<<20)).Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return map[string]string{}, nil
		}
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("read configuration %s: want lines of key: value", path)
	}
	out := map[string]string{}
	pairs := doc.Content[0].Content
	for i := 0; i+1 < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		where := fmt.Sprintf("%s:%d", path, key.Line)
		switch _, twice := out[key.Value]; {
		case twice:
			return nil, fmt.Errorf("%s: key %q is there twice", where, key.Value)
		case !known[key.Value]:
			return nil, fmt.Errorf("%s: unknown key %q%s", where, key.Value, keyHint(key.Value, known))
		}
		text, err := scalar(value)
		if err != nil {
			return nil, fmt.Errorf("%s: key %q: %w", where, key.Value, err)
		}
		out[key.Value] = text
	}
	return out, nil
}

func scalar(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "", errors.New("has no value")
		}
		return n.Value, nil
	case yaml.SequenceNode:
		parts := make([]string, 0, len(n.Content))
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode || item.Tag == "!!null" || strings.Contains(item.Value, ",") {
				return "", errors.New("want a list of single values")
			}
			parts = append(parts, item.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("want a value or a list of values")
}

// keyHint helps with the usual slips: dashes, and what is close.
func keyHint(key string, known map[string]bool) string {
	if k := fileKey(key); known[k] {
		return fmt.Sprintf(", did you mean %q?", k)
	}
	names := make([]string, 0, len(known))
	for k := range known {
		names = append(names, k)
	}
	slices.Sort(names)
	return ", known are " + strings.Join(names, ", ")
}
