package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
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

func flagName(key string) string { return strings.ReplaceAll(key, "_", "-") }

// applyLayers fills in the flags of cmd that the command line left alone. An
// empty environment variable counts as not set.
func applyLayers(e env, cmd *cobra.Command) error {
	if !cmd.Flags().Changed("config") {
		e.flags.config = e.getenv(envPrefix + "CONFIG")
	}
	err := fillIn(cmd.Flags(), e, knownKeys(cmd.Root()))
	if f := cmd.Flags().Lookup("timeout"); f != nil && origin(f) != "default" {
		e.flags.patience = 0 // who names a time wants all of it
	}
	return err
}

// fillIn sets the flags that are not yet set from the environment and from the
// file of e. Its error has every fault of both: a person should not have to
// correct a file one run at a time.
func fillIn(flags *pflag.FlagSet, e env, known map[string]bool) error {
	var errs []error
	file := map[string]fileValue{}
	if e.flags.config != "" {
		var err error
		if file, err = readConfig(e.flags.config, known); err != nil {
			errs = append(errs, err)
		}
	}
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed || !isLayered(f) {
			return
		}
		value, from := e.getenv(envName(f.Name)), envName(f.Name)
		if value == "" {
			v, ok := file[fileKey(f.Name)]
			if !ok {
				return
			}
			value, from = v.text, fmt.Sprintf("%s in %s:%d", fileKey(f.Name), e.flags.config, v.line)
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, &settingFault{key: fileKey(f.Name), from: from, value: value, problem: wantOf(f, err)})
			return
		}
		f.Annotations[originKey] = []string{from}
	})
	if len(errs) == 0 {
		return nil
	}
	return &usageError{errors.Join(errs...)}
}

// settingFault is one value that is wrong, and where it was set.
type settingFault struct {
	key     string // as in the file
	from    string // flag, variable, or key, file and line
	value   string // never a secret
	problem string // what is wrong and what would do
}

func (f *settingFault) Error() string {
	if f.value == "" || strings.Contains(f.problem, strconv.Quote(f.value)) {
		return f.from + ": " + f.problem
	}
	return fmt.Sprintf("%s %q: %s", f.from, f.value, f.problem)
}

// wantOf says what a flag takes where its own error speaks of Go's parser.
func wantOf(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "bool":
		return "want true or false"
	case "int", "int32", "int64":
		return "want a whole number"
	case "uint32", "uint64":
		return "want a whole number, 0 or more"
	}
	return err.Error()
}

// flagFault takes Go's parser out of what is said of a flag on the command line.
func flagFault(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) || bad.GetFlag() == nil {
		return err
	}
	var parse *strconv.NumError
	if !errors.As(err, &parse) {
		return err
	}
	problem := wantOf(bad.GetFlag(), parse)
	if errors.Is(parse, strconv.ErrRange) {
		problem += ", not that large"
	}
	return fmt.Errorf("--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), problem)
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

// fileValue is one value of the file.
type fileValue struct {
	text string
	line int
}

// maxConfig is far above what all keys need.
const maxConfig = 1 << 20

// readConfig reads a flat YAML map. Lists are joined by commas, as on the
// command line. Unknown and repeated keys are errors with their line; the
// error has all of them, and what could be read is returned beside it.
func readConfig(path string, known map[string]bool) (map[string]fileValue, error) {
	pairs, err := readPairs(path)
	if err != nil {
		return nil, err
	}
	out := map[string]fileValue{}
	var errs []error
	for i := 0; i+1 < len(pairs); i += 2 {
		key, value := pairs[i], pairs[i+1]
		from := fmt.Sprintf("%s:%d", path, key.Line)
		refuse := func(problem string) {
			errs = append(errs, &settingFault{key: key.Value, from: from, problem: problem})
		}
		first, twice := out[key.Value]
		text, err := scalar(value)
		switch {
		case twice:
			refuse(fmt.Sprintf("key %q is there twice, first in line %d", key.Value, first.line))
		case !known[key.Value]:
			refuse(fmt.Sprintf("unknown key %q%s", key.Value, keyHint(key.Value, known)))
		case err != nil:
			refuse(fmt.Sprintf("key %q: %v", key.Value, err))
		default:
			out[key.Value] = fileValue{text, key.Line}
		}
	}
	return out, errors.Join(errs...)
}

// unreadableError is a file of which nothing is known.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

func unreadable(format string, args ...any) error {
	return &unreadableError{fmt.Errorf(format, args...)}
}

// readPairs returns the keys and values of the file in turn.
func readPairs(path string) ([]*yaml.Node, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, unreadable("read configuration: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	switch {
	case err != nil:
		return nil, unreadable("read configuration: %w", err)
	case len(raw) > maxConfig:
		return nil, unreadable("read configuration %s: above the limit of %d bytes", path, maxConfig)
	}
	var doc, more yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, unreadable("read configuration %s: %w", path, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, unreadable("read configuration %s: want lines of key: value", path)
	}
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, unreadable("read configuration %s: a second document (---) begins in line %d: want one", path, max(more.Line, 1))
	}
	return doc.Content[0].Content, nil
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
