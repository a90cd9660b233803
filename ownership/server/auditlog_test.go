package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/auditlog"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/pki"
)

// What was called before and after a restart is in one chain, and what is read
// alone is not in it.
func TestAuditLog(t *testing.T) {
	c := newCluster(t, 1)
	path := filepath.Join(c.dir, "audit.log")
	c.configs[0].AuditLog = path
	for _, keyspace := range []string{"orders", "bills"} {
		c.startAll()
		cl := c.client()
		createKeyspace(t, cl, keyspace, 4, 3*time.Second, leaseholdv1.Takeover_TAKEOVER_STRICT)
		c.partitions(cl, keyspace)
		c.stopServer(0)
	}
	rep, err := auditlog.Verify("", path)
	if err != nil || len(rep.Servers) != 1 || rep.Servers[0].Server != "s1" {
		t.Fatalf("%+v, %v", rep, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"method":"/leasehold.v1.KeyspaceService/CreateKeyspace","target":"name=orders","outcome":"ok"`,
		`"method":"/leasehold.v1.KeyspaceService/CreateKeyspace","target":"name=bills","outcome":"ok"`,
		`"who":"anybody"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	if n := strings.Count(string(text), `"method":"(stop)"`); n != 2 {
		t.Errorf("%d ends in good order, want 2", n)
	}
	if strings.Contains(string(text), "/Get") || strings.Contains(string(text), "/List") {
		t.Errorf("calls that change nothing are in it:\n%s", text)
	}
}

func TestAuditLogPath(t *testing.T) {
	tls := pki.Files{Cert: "c", Key: "k", CA: "a"}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{DataDir: "d"}, ""},
		{Config{DataDir: "d", TLS: tls}, filepath.Join("d", "audit.log")},
		{Config{DataDir: "d", TLS: tls, AuditLog: "x"}, "x"},
		{Config{DataDir: "d", TLS: tls, AuditLog: AuditLogOff}, ""},
		{Config{DataDir: "d", AuditLog: "x"}, "x"},
		{Config{TLS: tls}, ""},
	} {
		if got := c.cfg.auditPath(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.cfg.AuditLog, got, c.want)
		}
	}
}
