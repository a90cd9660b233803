package worker

import (
	"strings"
	"testing"
	"time"
)

// A wrong field is named together with its value and the limit.
func TestConfigNamesWhatIsWrong(t *testing.T) {
	long := strings.Repeat("x", 300)
	for name, tc := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"no servers":       {func(c *Config) { c.Servers = " " }, []string{"servers", "7400"}},
		"server port":      {func(c *Config) { c.Servers = "a:99999" }, []string{"a:99999", "65535"}},
		"slash":            {func(c *Config) { c.ID = "a/b" }, []string{"ID", "a/b", "'/'"}},
		"dots":             {func(c *Config) { c.ID = ".." }, []string{"ID", `".."`}},
		"space":            {func(c *Config) { c.ID = " " }, []string{"ID", `" "`}},
		"emoji":            {func(c *Config) { c.ID = "wörker" }, []string{"ID", "'ö'"}},
		"long":             {func(c *Config) { c.ID = long }, []string{"ID", "300 bytes", "128"}},
		"control":          {func(c *Config) { c.Zone = "a\nb" }, []string{"Zone", `\n`}},
		"labels":           {func(c *Config) { c.Labels = map[string]string{"": "x"} }, []string{"Labels", "empty"}},
		"label value":      {func(c *Config) { c.Labels = map[string]string{"k": long} }, []string{"Labels", "128"}},
		"gossip":           {func(c *Config) { c.Gossip = "on" }, []string{"Gossip", `"on"`, "auto, off or host:port"}},
		"gossip against":   {func(c *Config) { c.Gossip, c.GossipAdvertise = GossipOff, "1.2.3.4:7" }, []string{"Gossip", "off", "GossipAdvertise", "1.2.3.4:7"}},
		"negative grace":   {func(c *Config) { c.StopGrace = -1 }, []string{"StopGrace", "-1ns"}},
		"grace over bound": {func(c *Config) { c.StopGrace, c.ShutdownTimeout = time.Minute, time.Second }, []string{"StopGrace", "1m0s", "ShutdownTimeout", "1s"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Servers: "127.0.0.1:7400", ID: "w1"}
			if err := cfg.Validate(); err != nil {
				t.Fatalf("a good configuration: %v", err)
			}
			tc.change(&cfg)
			err := cfg.Validate()
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if _, err := Join(t.Context(), cfg); err == nil {
				t.Error("Join took it")
			}
		})
	}
}

func TestConfigTellsAllThatIsWrong(t *testing.T) {
	err := Config{ID: "a b", StopGrace: -1}.Validate()
	for _, w := range []string{"servers", "ID", "StopGrace"} {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not name %s", err, w)
		}
	}
}
