package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/server"
)

// maxExposure is in tenths, as systemd-analyze counts: 0 is shut off from
// everything, 100 has no walls at all.
const maxExposure = "20"

// unit returns the systemd unit, and a copy whose program exists here.
func unit(t *testing.T) (text, copied string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root(t), "deploy", "systemd", "leasehold.service"))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "leasehold")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	copied = filepath.Join(t.TempDir(), "leasehold.service")
	if err := os.WriteFile(copied, bytes.ReplaceAll(raw, []byte("=/usr/bin/leasehold "), []byte("="+program+" ")), 0o644); err != nil {
		t.Fatal(err)
	}
	return string(raw), copied
}

// setting returns the values of a key of the unit.
func setting(unit, key string) (values []string) {
	for _, m := range regexp.MustCompile(`(?m)^`+key+`=(.*)$`).FindAllStringSubmatch(unit, -1) {
		values = append(values, m[1])
	}
	return values
}

func TestUnitIsAcceptedAndHardened(t *testing.T) {
	needTool(t, "systemd-analyze")
	_, file := unit(t)
	if out, err := exec.Command("systemd-analyze", "verify", "--man=no", file).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("verify: %v\n%s", err, out)
	}
	out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold="+maxExposure, file).CombinedOutput()
	if err != nil {
		t.Errorf("security: %v\n%s", err, out)
	}
	if !strings.Contains(string(out), "Overall exposure level") {
		t.Errorf("security said nothing:\n%s", out)
	}
}

// What the unit promises fits what the program does.
func TestUnitFitsTheProgram(t *testing.T) {
	text, _ := unit(t)
	one := func(key string) string {
		t.Helper()
		v := setting(text, key)
		if len(v) != 1 {
			t.Fatalf("%s is there %d times", key, len(v))
		}
		return v[0]
	}
	seconds := func(key string) time.Duration {
		t.Helper()
		d, err := time.ParseDuration(one(key) + "s")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if stop, want := seconds("TimeoutStopSec"), server.DefaultConfig().ShutdownTimeout+stopSlack; stop < want {
		t.Errorf("TimeoutStopSec is %v, the program may take %v", stop, want)
	}
	if start := seconds("TimeoutStartSec"); start < 2*extendEvery {
		t.Errorf("TimeoutStartSec is %v, more time is asked for every %v only", start, extendEvery)
	}
	// A hanging disk ends the store after 20 s and with a better message.
	if dog := seconds("WatchdogSec"); dog <= 20*time.Second {
		t.Errorf("WatchdogSec is %v: it must leave the store time to name a hanging disk", dog)
	}
	if one("Type") != "notify" || one("Restart") != "on-failure" || one("RestartPreventExitStatus") != "2" {
		t.Error("start and restart are not as the program expects")
	}
	start, reload := one("ExecStart"), setting(text, "ExecReload")
	if len(reload) != 2 || reload[0] != strings.Replace(start, " server ", " config check ", 1) || reload[1] != "/bin/kill -HUP $MAINPID" {
		t.Errorf("start %q, reload %q: the check must read what the server does", start, reload)
	}
}

// The sample is a file that a server starts with, and so are the lines in it
// that wait to be uncommented.
func TestSampleSettings(t *testing.T) {
	sample, err := os.ReadFile(filepath.Join(root(t), "deploy", "systemd", "leasehold.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	(&cli{}).want(t, exitOK, "config", "check", "--config", writeFile(t, string(sample)), "--data-dir", dir)

	commented := regexp.MustCompile(`(?m)^# ([a-z_]+): (.*)$`)
	options := commented.FindAllStringSubmatch(string(sample), -1)
	if len(options) < 4 {
		t.Fatalf("found only %v", options)
	}
	for _, o := range options {
		active := regexp.MustCompile(`(?m)^` + o[1] + `: .*$`)
		text := active.ReplaceAllString(string(sample), "") + o[1] + ": " + o[2] + "\n"
		out, _ := (&cli{}).want(t, exitOK, "config", "print", "--origin", "--config", writeFile(t, text), "--data-dir", dir)
		if !regexp.MustCompile(o[1] + `: .*# ` + o[1] + ` in `).MatchString(out) {
			t.Errorf("%s is not taken:\n%s", o[0], out)
		}
	}
}
