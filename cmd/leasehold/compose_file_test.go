package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// composed is what docker-compose makes of the file.
type composed struct {
	Services map[string]struct {
		Image          string
		Ports, Volumes []string
		Environment    map[string]string
	}
}

// readYAML reads a file of deploy.
func readYAML(t *testing.T, raw []byte, err error, into any) {
	t.Helper()
	if err == nil {
		err = yaml.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The whole file, Grafana too, whose image cannot be had everywhere: what it
// mounts is there, its ports are on loopback, and Prometheus and Grafana find
// what they are told of.
func TestComposeFileFitsTogether(t *testing.T) {
	t.Parallel()
	if err := exec.Command("docker-compose", "version").Run(); err != nil {
		lacking(t, "no docker-compose: %v", err)
	}
	dir := filepath.Join(root(t), "deploy", "compose")
	var c composed
	raw, err := exec.Command("docker-compose", "-f", filepath.Join(dir, "compose.yaml"), "--profile", "grafana", "config").Output()
	readYAML(t, raw, err, &c)

	mounted := map[string]string{} // service and place → file or directory of ours
	for name, s := range c.Services {
		if tag := s.Image[strings.LastIndex(s.Image, ":")+1:]; tag == "latest" || !regexp.MustCompile(`^v?\d+\.\d+\.\d+$|^local$`).MatchString(tag) {
			t.Errorf("%s: image %s has no fixed version", name, s.Image)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond loopback", name, p)
			}
		}
		for _, v := range s.Volumes {
			parts := strings.Split(v, ":")
			if !strings.HasPrefix(parts[0], "/") {
				continue // a volume of the engine's
			}
			if _, err := os.Stat(parts[0]); err != nil || parts[2] != "ro" {
				t.Errorf("%s mounts %s: %v", name, v, err)
			}
			mounted[name+parts[1]] = parts[0]
		}
	}

	// Prometheus is told of every server and worker, at the ports they have.
	for file, port := range map[string]string{"servers.json": "7480", "workers.json": "9400"} {
		raw, err := os.ReadFile(mounted["prometheus/etc/prometheus/"+file])
		var targets []struct{ Targets []string }
		if err == nil {
			err = json.Unmarshal(raw, &targets)
		}
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for name, s := range c.Services {
			if addr := s.Environment["LEASEHOLD_HTTP_ADDR"] + s.Environment["LEASEHOLD_METRICS_ADDR"]; strings.HasSuffix(addr, ":"+port) {
				want = append(want, name+":"+port)
			}
		}
		for _, target := range targets {
			got = append(got, target.Targets...)
		}
		if slices.Sort(want); len(want) != 3 || !slices.Equal(want, got) {
			t.Errorf("%s has %v, want %v", file, got, want)
		}
	}

	// Grafana finds Prometheus, and the dashboards where they are mounted.
	provisioning := mounted["grafana/etc/grafana/provisioning"]
	var sources struct{ Datasources []struct{ URL string } }
	raw, err = os.ReadFile(filepath.Join(provisioning, "datasources", "prometheus.yaml"))
	readYAML(t, raw, err, &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("data sources %+v", sources)
	}
	var providers struct {
		Providers []struct{ Options struct{ Path string } }
	}
	raw, err = os.ReadFile(filepath.Join(provisioning, "dashboards", "leasehold.yaml"))
	readYAML(t, raw, err, &providers)
	if len(providers.Providers) != 1 {
		t.Fatalf("providers %+v", providers)
	}
	path := providers.Providers[0].Options.Path
	found, err := filepath.Glob(filepath.Join(mounted["grafana"+path], "*.json"))
	if err != nil || len(found) < 4 {
		t.Errorf("%d dashboards in %s: %v", len(found), path, err)
	}
	home := c.Services["grafana"].Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if filepath.Dir(home) != path || !slices.Contains(found, filepath.Join(mounted["grafana"+path], filepath.Base(home))) {
		t.Errorf("the page it begins with, %s, is none of %v", home, found)
	}
}
