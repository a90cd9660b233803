package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// A store that has reached its quota is mended with these commands alone.
func TestFullStoreIsMendedFromTheShell(t *testing.T) {
	t.Parallel()
	args := []string{"server", "--id", "s1", "--data-dir", filepath.Join(t.TempDir(), "data"), "--bootstrap-expect", "1", "--quota-bytes", "1048576"}
	p := startProgram(t, append(args, freePorts...)...)
	env := map[string]string{"LEASEHOLD_SERVER": grpcAddr(t, p)}
	want := func(code int, stdin string, args ...string) (stdout, stderr string) {
		t.Helper()
		return (&cli{env: env, stdin: stdin}).want(t, code, args...)
	}
	want(exitOK, "", "status", "--wait", "--timeout", "1m")
	eventually(t, env["LEASEHOLD_SERVER"], fmt.Sprintf(`"feature_level": %d`, state.MaxFeature), "status", "-o", "json")
	big := strings.Repeat("x", 400_000)
	first, _ := want(exitOK, big, "kv", "put", "big", "-")
	for tries := 0; ; tries++ {
		c := &cli{env: env, stdin: big}
		if c.run(t, "kv", "put", "big", "-") == exitRefused && strings.Contains(c.stderr.String(), "space exceeded") {
			break
		}
		if tries == 5 {
			t.Fatal("the quota was never reached")
		}
	}
	want(exitUsage, "", "kv", "compact", "now")
	want(exitOK, "", "kv", "del", "big")
	want(exitRefused, "", "kv", "put", "small", "1")
	want(exitOK, "", "kv", "compact")
	want(exitRefused, "", "kv", "compact", strings.TrimSpace(first))
	if out, _ := want(exitOK, "", "kv", "disarm"); out != "1\n" {
		t.Errorf("disarm: %q", out)
	}
	want(exitOK, "", "kv", "put", "small", "1")
	if out, _ := want(exitOK, "", "kv", "disarm"); out != "0\n" {
		t.Errorf("disarm without an alarm: %q", out)
	}
}
