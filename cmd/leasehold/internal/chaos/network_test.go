package chaos

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// reaches says whether a packet of one host gets to another, and an answer
// back, within a time.
func reaches(t *testing.T, n *Network, from, to string, within time.Duration) bool {
	t.Helper()
	wrap := append(n.Wrap(from), "bash", "-c", "exec 3<>/dev/tcp/"+n.Addr(to)+"/9")
	cmd := exec.Command(wrap[0], wrap[1:]...)
	var out strings.Builder
	cmd.Stderr = &out
	cmd.WaitDelay = time.Second
	timer := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	_ = cmd.Run() // nobody listens: it fails either way
	return strings.Contains(out.String(), "refused")
}

func TestHostsAreCutOffAndHealed(t *testing.T) {
	n, err := OpenNetwork()
	if errors.Is(err, ErrNoNetwork) && os.Getenv("LEASEHOLD_CI") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat("/run/netns/" + n.namespace("a")); !os.IsNotExist(err) {
			t.Errorf("a namespace is left: %v", err)
		}
	}()
	hosts := []string{"a", "b", "c"}
	for _, h := range hosts {
		if _, err := n.Add(h); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when string, pairs map[string]bool) {
		t.Helper()
		for pair, open := range pairs {
			within := time.Second
			if open { // it takes a moment, and two processes that may be slow to start
				within = 20 * time.Second
			}
			if reaches(t, n, pair[:1], pair[1:], within) != open {
				t.Errorf("%s: %s reaches %s: %v", when, pair[:1], pair[1:], !open)
			}
		}
	}
	want("whole", map[string]bool{"ab": true, "ba": true, "ac": true})
	if err := n.Cut([]string{"a"}, hosts); err != nil {
		t.Fatal(err)
	}
	want("a is cut off", map[string]bool{"ab": false, "ba": false, "bc": true})
	if err := n.Heal(); err != nil {
		t.Fatal(err)
	}
	want("healed", map[string]bool{"ab": true, "ba": true})
	if err := n.Drop("a", "b"); err != nil {
		t.Fatal(err)
	}
	want("a does not hear b", map[string]bool{"ab": false, "ac": true, "bc": true})
}

func TestANetworkMayFollowOnAnother(t *testing.T) {
	for range 5 {
		n, err := OpenNetwork()
		if errors.Is(err, ErrNoNetwork) && os.Getenv("LEASEHOLD_CI") != "1" {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Add("a"); err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLeftoversOfAKilledRunAreRemoved(t *testing.T) {
	n, err := OpenNetwork()
	if errors.Is(err, ErrNoNetwork) && os.Getenv("LEASEHOLD_CI") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	left := prefix + strconv.Itoa(gone.Process.Pid) + "-a"
	if err := run("ip", "netns", "add", left); err != nil {
		t.Fatal(err)
	}
	if err := removeLeftovers(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/run/netns/" + left); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", left, err)
	}
	if _, err := os.Stat("/run/netns/" + n.prefix + "-sw"); err != nil {
		t.Errorf("the network of a living run was removed: %v", err)
	}
}
