package server

import (
	"net/http"
	"testing"

	"github.com/leasehold-dev/leasehold/ownership/pki/pkitest"
)

// secureCluster is a cluster of which everybody has a certificate. The test's own
// clients are operators.
func secureCluster(t *testing.T, n int) (*cluster, *pkitest.Authority) {
	t.Helper()
	ca, c := pkitest.New(t), newCluster(t, n)
	for i := range c.configs {
		c.configs[i].TLS = ca.Server(c.configs[i].ID)
	}
	c.tls = ca.Client(ca.Operator("test"))
	return c, ca
}

// http is a client of the cluster's HTTP ports that keeps no connection.
func (c *cluster) http() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c.tls, DisableKeepAlives: true}}
}

// url is a path on the HTTP port of a server.
func (c *cluster) url(i int, path string) string {
	scheme := "http://"
	if c.tls != nil {
		scheme = "https://"
	}
	return scheme + c.running[i].Addrs().HTTP + path
}
