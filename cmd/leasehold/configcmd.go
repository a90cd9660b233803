package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

func newConfigCommand(e env) *cobra.Command {
	return group("config", "Check and show the settings of a server",
		"  leasehold config check --config /etc/leasehold/leasehold.yaml", newConfigCheckCommand(e), newConfigPrintCommand(e))
}

// configFlags are the flags of server on a command that starts none.
type configFlags struct {
	serverFlags
	faults []error // of all layers
}

// command makes cmd take what server takes, and gather every fault of it
// instead of ending with the first.
func (c *configFlags) command(e env, cmd *cobra.Command) *cobra.Command {
	c.define(cmd)
	cmd.Args = exactArgs()
	c.each(func(f *pflag.Flag) {
		if _, list := f.Value.(pflag.SliceValue); !list {
			f.Value = &gathering{Value: f.Value, flag: f.Name, faults: &c.faults}
		}
	})
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		c.each(func(f *pflag.Flag) {
			if g, ok := f.Value.(*gathering); ok {
				f.Value = g.Value
			}
		})
		c.faults = append(c.faults, eachError(applyLayers(e, cmd))...)
		return nil
	}
	return cmd
}

// gathering keeps what is wrong with a flag on the command line, where the
// first fault would end the parser.
type gathering struct {
	pflag.Value
	flag   string
	faults *[]error
}

// Set implements pflag.Value.
func (g *gathering) Set(s string) error {
	if err := g.Value.Set(s); err != nil {
		problem := wantOf(&pflag.Flag{Name: g.flag, Value: g.Value}, err)
		*g.faults = append(*g.faults, &settingFault{key: fileKey(g.flag), from: "--" + g.flag, value: s, problem: problem})
	}
	return nil
}

func newConfigCheckCommand(e env) *cobra.Command {
	var c configFlags
	var bind bool
	cmd := c.command(e, &cobra.Command{
		Use:   "check",
		Short: "Check the settings of a server without starting it",
		Long: `Read flags, environment and file as server does, with the same flags, and name
everything that is wrong, with the place where it was set. The data directory
and the files of keys and certificates are looked at too, so run it as the
server's user.
Nothing is started, created or locked: a running server does not notice.

It ends with 0 when server would start with these settings, else with 2.`,
		Example: `  leasehold config check --config /etc/leasehold/leasehold.yaml
  leasehold config check --config new.yaml --bind    # on a machine where no server runs yet
  leasehold config check --config new.yaml -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := c.config(e)
			faults := append(c.faults, eachError(err)...)
			faults = append(faults, c.lookAround(cfg, bind)...)
			return c.verdict(e, causes(faults))
		},
	})
	cmd.Flags().BoolVar(&bind, "bind", false, "also try to listen on the addresses")
	return cmd
}

// verdict tells all faults, or what would be in effect.
func (c *configFlags) verdict(e env, faults []error) error {
	if e.json() {
		if err := printJSON(e.stdout, faultItems(faults)); err != nil {
			return err
		}
		if len(faults) > 0 {
			return &codedError{exitUsage, nil}
		}
		return nil
	}
	switch len(faults) {
	case 0:
		return e.say("the settings are good: %s", c.summary(e))
	case 1:
		return &hintError{usageErrors(faults...), "leasehold config print --origin"}
	}
	lines := []string{fmt.Sprintf("%d faults:", len(faults))}
	for _, f := range faults {
		lines = append(lines, "  "+f.Error())
	}
	return &hintError{usage("%s", strings.Join(lines, "\n")), "leasehold config print --origin"}
}

// faultItem is one fault for programs.
type faultItem struct {
	Key     string `json:"key,omitempty"`
	From    string `json:"from,omitempty"`
	Value   string `json:"value,omitempty"`
	Problem string `json:"problem"`
}

func faultItems(faults []error) any {
	items := make([]faultItem, 0, len(faults))
	for _, err := range faults {
		item := faultItem{Problem: err.Error()}
		var f *settingFault
		if errors.As(err, &f) {
			item = faultItem{f.key, f.from, f.value, f.problem}
		}
		item.Key, item.Value, item.Problem = withoutSecrets(item.Key), withoutSecrets(item.Value), withoutSecrets(item.Problem)
		items = append(items, item)
	}
	return map[string]any{"items": items}
}

// summary counts where the settings came from.
func (c *configFlags) summary(e env) string {
	flags, vars, file := 0, 0, 0
	c.each(func(f *pflag.Flag) {
		switch from := origin(f); {
		case f.Changed:
			flags++
		case from == envName(f.Name):
			vars++
		case from != "default":
			file++
		}
	})
	parts := []string{fmt.Sprintf("%d from flags", flags), fmt.Sprintf("%d from the environment", vars)}
	if e.flags.config != "" {
		parts = append(parts, fmt.Sprintf("%d from %s", file, e.flags.config))
	}
	return strings.Join(parts, ", ") + ", the others by default"
}

func newConfigPrintCommand(e env) *cobra.Command {
	var c configFlags
	var origins bool
	cmd := c.command(e, &cobra.Command{
		Use:   "print",
		Short: "Print the settings of a server as a file",
		Long: `Print what server would use when called with the same flags, environment and
file, as a file that can be given to --config again, with a line on each key.
Secrets are not in it, only the paths of the files that hold them.`,
		Example: `  leasehold config print > leasehold.yaml            # a file to begin with
  leasehold config print --origin --config leasehold.yaml
  leasehold config print --config leasehold.yaml -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := usageErrors(c.faults...); err != nil {
				return err
			}
			if e.json() {
				return c.printJSON(e)
			}
			return c.printYAML(e, origins)
		},
	})
	cmd.Flags().BoolVar(&origins, "origin", false, "say where each value came from: flag, variable, line of the file, or default")
	return cmd
}

// settingItem is one setting for programs.
type settingItem struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	From  string `json:"from"`
	Flag  string `json:"flag"`
	Env   string `json:"env"`
	Help  string `json:"help"`
}

func (c *configFlags) printJSON(e env) error {
	var items []settingItem
	c.each(func(f *pflag.Flag) {
		items = append(items, settingItem{fileKey(f.Name), valueOf(f), origin(f), "--" + f.Name, envName(f.Name), helpOf(f)})
	})
	return printJSON(e.stdout, map[string]any{"items": items})
}

// valueOf is a value as JSON has it: numbers and lists are no texts.
func valueOf(f *pflag.Flag) any {
	if list, ok := f.Value.(pflag.SliceValue); ok {
		shown := []string{}
		for _, item := range list.GetSlice() {
			shown = append(shown, withoutSecrets(item))
		}
		return shown
	}
	switch f.Value.Type() {
	case "bool", "int":
		var v any
		if err := yaml.Unmarshal([]byte(f.Value.String()), &v); err == nil {
			return v
		}
	}
	return shown(f) // also 64-bit numbers, as everywhere in our JSON
}

func (c *configFlags) printYAML(e env, origins bool) error {
	type line struct{ help, text, from string }
	var lines []line
	var err error
	width := 0
	c.each(func(f *pflag.Flag) {
		text, yerr := yamlValue(f)
		err = errors.Join(err, yerr)
		l := line{helpOf(f), fileKey(f.Name) + ": " + text, origin(f)}
		lines = append(lines, l)
		width = max(width, len(l.text))
	})
	if err != nil {
		return err
	}
	var b strings.Builder
	for i, l := range lines {
		if i > 0 && !origins {
			b.WriteByte('\n')
		}
		if origins {
			fmt.Fprintf(&b, "%-*s  # %s\n", width, l.text, cell(l.from))
		} else {
			fmt.Fprintf(&b, "# %s\n%s\n", l.help, l.text)
		}
	}
	_, err = fmt.Fprint(e.stdout, b.String())
	return err
}

// yamlValue writes a value on one line, quoted where YAML would take it for
// something else.
func yamlValue(f *pflag.Flag) (string, error) {
	n := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: shown(f)}
	switch list, ok := f.Value.(pflag.SliceValue); {
	case ok:
		n = yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range list.GetSlice() {
			n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: withoutSecrets(item)})
		}
	case f.Value.Type() == "bool", f.Value.Type() == "int", f.Value.Type() == "uint64":
		n.Tag = ""
	case strings.ContainsAny(n.Value, "\n\r"):
		n.Style = yaml.DoubleQuotedStyle
	}
	raw, err := yaml.Marshal(&n)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", fileKey(f.Name), err)
	}
	return strings.TrimSuffix(string(raw), "\n"), nil
}

// helpOf is the flag's help without what --help adds to it.
func helpOf(f *pflag.Flag) string {
	help, _, _ := strings.Cut(f.Usage, " (env ")
	return strings.ReplaceAll(help, "`", "")
}
