package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
)

// put replaces a file in one step, as tools that deploy certificates do.
func put(t *testing.T, path string, data []byte) {
	t.Helper()
	write(t, path+".new", data)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// cluster is an authority, the stores of some servers, and one worker.
type cluster struct {
	t      *testing.T
	dir    string
	a      *Authority
	files  map[string]Files
	stores map[string]*Store
	logs   map[string]*logs
	worker *tls.Config
}

func newCluster(t *testing.T, life time.Duration, crl bool, servers ...string) *cluster {
	c := &cluster{t: t, dir: t.TempDir(), files: map[string]Files{}, stores: map[string]*Store{}, logs: map[string]*logs{}}
	c.a = authority(t, c.dir, "leasehold")
	if crl {
		c.revoke(life)
	}
	for _, name := range append(servers, "w1") {
		role := access.Server
		if name == "w1" {
			role = access.Worker
		}
		f, _ := issue(t, c.a, c.dir, role, name, life)
		if crl {
			f.CRL = filepath.Join(c.dir, "crl.pem")
		}
		c.files[name] = f
		if role == access.Server {
			c.stores[name], c.logs[name] = open(t, f, "leasehold")
		}
	}
	var err error
	if c.worker, err = Client(c.files["w1"]); err != nil {
		t.Fatal(err)
	}
	return c
}

// renew replaces a pair of files.
func (c *cluster) renew(a *Authority, name string, life time.Duration) {
	c.t.Helper()
	n := Name{Role: access.Server, Name: name, Scope: access.Everywhere()}
	if name == "w1" {
		n.Role = access.Worker
	}
	pair, _, err := a.Issue(Request{Name: n, Life: life})
	if err != nil {
		c.t.Fatal(err)
	}
	put(c.t, c.files[name].Cert, pair.Cert)
	put(c.t, c.files[name].Key, pair.Key)
}

// revoke writes the list anew, with more in it.
func (c *cluster) revoke(life time.Duration, names ...string) {
	c.t.Helper()
	path := filepath.Join(c.dir, "crl.pem")
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		c.t.Fatal(err)
	}
	var serials []*big.Int
	for _, name := range names {
		cert, err := ParseCertificate(c.files[name].Cert)
		if err != nil {
			c.t.Fatal(err)
		}
		serials = append(serials, cert.SerialNumber)
	}
	after, _, err := c.a.Revoke(before, serials, life)
	if err != nil {
		c.t.Fatal(err)
	}
	put(c.t, path, after)
}

// dial has one server dial another's Raft port.
func (c *cluster) dial(from, to string) (serverErr, clientErr error) {
	_, serverErr, clientErr = shake(c.t, c.stores[to].Config(UseRaft), c.stores[from].Config(UsePeer))
	return serverErr, clientErr
}

func (c *cluster) well(pairs ...string) {
	c.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if se, ce := c.dial(pairs[i], pairs[i+1]); se != nil || ce != nil {
			c.t.Errorf("%s to %s: %v, %v", pairs[i], pairs[i+1], se, ce)
		}
	}
}

// Certificates for three minutes, replaced after two, and one server forgotten.
func TestCertificatesRunOutAndAreReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3*time.Minute, false, "s1", "s2", "s3")
		c.well("s1", "s2", "s2", "s3", "s3", "s1")
		// Configurations that were made before are those in use after.
		s1, s2 := c.stores["s1"].Config(UseRaft), c.stores["s2"].Config(UsePeer)
		old := c.stores["s3"].Certificates()[0]
		time.Sleep(2 * time.Minute)
		for _, name := range []string{"s1", "s2", "w1"} {
			c.renew(c.a, name, 3*time.Minute)
		}
		time.Sleep(time.Minute + time.Second)

		if _, se, ce := shake(t, s1, s2); se != nil || ce != nil {
			t.Fatal("two that were renewed:", se, ce)
		}
		if _, se, ce := shake(t, c.stores["s1"].Config(UseAPI), c.worker); se != nil || ce != nil {
			t.Fatal("the worker:", se, ce)
		}
		// The one left behind says which file it is, and so do the others of it.
		expired := "(serial " + old.Serial + "): it expired on " + day(old.NotAfter)
		if _, err := c.dial("s3", "s1"); ReasonOf(err) != ReasonExpired || !strings.Contains(err.Error(), c.files["s3"].Cert) || !strings.Contains(err.Error(), expired) {
			t.Error("it dials:", err)
		}
		if _, err := c.dial("s1", "s3"); ReasonOf(err) != ReasonExpired || !strings.Contains(err.Error(), expired) || !strings.Contains(err.Error(), "leasehold://leasehold/server/s3") {
			t.Error("it is dialled:", err)
		}
		if l := c.logs["s3"].String(); strings.Count(l, "TLS files are no longer good") != 1 || !strings.Contains(l, c.files["s3"].Cert) || !strings.Contains(l, expired) {
			t.Error("its log:", l)
		}
		if l := c.logs["s1"].String(); strings.Contains(l, "ERROR") || strings.Count(l, "TLS files read again") != 1 {
			t.Error("another's log:", l)
		}
		if info := c.stores["s1"].Certificates(); len(info) != 2 || info[0].Use != "server" || info[1].Use != "authority" || time.Until(info[0].NotAfter) < time.Minute || info[0].File != c.files["s1"].Cert {
			t.Error(info)
		}
		// It comes back without a restart.
		c.renew(c.a, "s3", 3*time.Minute)
		time.Sleep(lookEvery)
		c.well("s3", "s1", "s1", "s3")
		time.Sleep(lookEvery)
		c.stores["s3"].look()
		if l := c.logs["s3"].String(); strings.Count(l, "TLS files are no longer good") != 1 {
			t.Error("it goes on complaining:", l)
		}
	})
}

func TestFilesThatDoNotFitAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, day1, false, "s1", "s2")
		f, s := c.files["s1"], c.stores["s1"]
		good, _ := readFile(f.Cert)
		key, _ := readFile(f.Key)
		serial := s.Certificates()[0].Serial
		next, _, err := c.a.Issue(Request{Name: Name{Role: access.Server, Name: "s1", Scope: access.Everywhere()}, Life: day1})
		if err != nil {
			t.Fatal(err)
		}
		stranger, strangerPair, err := NewAuthority("leasehold", day1)
		if err != nil {
			t.Fatal(err)
		}
		foreign, _, _ := stranger.Issue(Request{Name: Name{Role: access.Server, Name: "s1", Scope: access.Everywhere()}, Life: day1})
		worker, _ := readFile(c.files["w1"].Cert)
		workerKey, _ := readFile(c.files["w1"].Key)
		ca, _ := readFile(f.CA)
		for name, files := range map[string]map[string][]byte{
			"half a certificate":           {f.Cert: next.Cert[:len(next.Cert)/2]},
			"nothing":                      {f.Cert: nil},
			"a certificate without key":    {f.Cert: next.Cert},
			"a key without certificate":    {f.Key: next.Key},
			"half a key":                   {f.Cert: next.Cert, f.Key: next.Key[:len(next.Key)/2]},
			"the two in each other's file": {f.Cert: next.Key, f.Key: next.Cert},
			"another authority's":          {f.Cert: foreign.Cert, f.Key: foreign.Key},
			"a worker's":                   {f.Cert: worker, f.Key: workerKey},
			"another authority":            {f.CA: strangerPair.Cert},
			"half an authority":            {f.CA: ca[:len(ca)/2]},
			"a server as authority":        {f.CA: good},
		} {
			for path, data := range files {
				put(t, path, data)
			}
			for range 3 {
				time.Sleep(lookEvery)
				c.well("s1", "s2", "s2", "s1")
			}
			if got := s.Certificates()[0].Serial; got != serial {
				t.Errorf("%s: serial %s is in use, want %s", name, got, serial)
			}
			l := c.logs["s1"].String()
			if n := strings.Count(l, "cannot be used"); n != 1 {
				t.Errorf("%s: logged %d times: %s", name, n, l)
			}
			for line := range strings.Lines(string(next.Key) + string(key)) {
				if line = strings.TrimSpace(line); len(line) > 20 && !strings.HasPrefix(line, "-") && strings.Contains(l, line) {
					t.Errorf("%s: a key is in the log: %s", name, l)
				}
			}
			if err := s.Reload(); err == nil || !strings.Contains(err.Error(), "the old one stays in use") {
				t.Errorf("%s: Reload says %v", name, err)
			}
			put(t, f.Cert, good)
			put(t, f.Key, key)
			put(t, f.CA, ca)
			if err := s.Reload(); err != nil {
				t.Fatal(name, err)
			}
			c.logs["s1"].b.Reset()
		}
		put(t, f.Cert, next.Cert)
		time.Sleep(lookEvery)
		c.well("s1", "s2")
		put(t, f.Key, next.Key)
		time.Sleep(lookEvery)
		c.well("s1", "s2")
		if s.Certificates()[0].Serial == serial {
			t.Error("the second half was not taken")
		}
	})
}

// A certificate for later is taken when its time has come.
func TestCertificateForLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, day1, false, "s1", "s2")
		s := c.stores["s1"]
		serial := s.Certificates()[0].Serial
		now := time.Now()
		later := forge(t, c.a, func(x *x509.Certificate) { x.NotBefore, x.NotAfter = now.Add(time.Hour), now.Add(day1) })
		key, err := x509.MarshalPKCS8PrivateKey(later.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		put(t, c.files["s1"].Cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: later.Certificate[0]}))
		put(t, c.files["s1"].Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
		time.Sleep(lookEvery)
		c.well("s1", "s2", "s2", "s1")
		if l := c.logs["s1"].String(); s.Certificates()[0].Serial != serial || !strings.Contains(l, "is the clock right?") {
			t.Error(l)
		}
		time.Sleep(time.Hour)
		c.well("s1", "s2", "s2", "s1")
		if s.Certificates()[0].Serial == serial {
			t.Error("its time has come")
		}
	})
}

func TestRevokedWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 48*time.Hour, true, "s1", "s2")
		var told []string
		c.stores["s1"].OnRevoked(func(serial string) { told = append(told, serial) })
		w1, err := ParseCertificate(c.files["w1"].Cert)
		if err != nil {
			t.Fatal(err)
		}
		api := c.stores["s1"].Config(UseAPI)
		if _, se, ce := shake(t, api, c.worker); se != nil || ce != nil {
			t.Fatal(se, ce)
		}
		before, _ := readFile(c.files["s1"].CRL)
		c.revoke(time.Hour, "w1")
		time.Sleep(lookEvery)
		if _, err := c.stores["s1"].Identity(w1); ReasonOf(err) != ReasonRevoked {
			t.Error("in a connection that is up:", err)
		}
		if _, se, _ := shake(t, api, c.worker); ReasonOf(se) != ReasonRevoked {
			t.Error("a new connection:", se)
		}
		if !slices.Equal(told, []string{Serial(w1)}) {
			t.Error("told", told)
		}
		if info := c.stores["s1"].Certificates()[2]; info.Use != "list" || info.Serial != "2" || info.File != c.files["s1"].CRL || time.Until(info.NotAfter) > time.Hour {
			t.Errorf("the list in use: %+v", info)
		}

		// An older list, or none, takes nothing back.
		for _, data := range [][]byte{before, nil, []byte("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n")} {
			put(t, c.files["s1"].CRL, data)
			time.Sleep(lookEvery)
			if _, se, _ := shake(t, api, c.worker); ReasonOf(se) != ReasonRevoked {
				t.Errorf("after a list of %d bytes: %v", len(data), se)
			}
		}
		if err := os.Remove(c.files["s1"].CRL); err != nil {
			t.Fatal(err)
		}
		time.Sleep(lookEvery)
		if _, se, _ := shake(t, api, c.worker); ReasonOf(se) != ReasonRevoked {
			t.Error("without a list:", se)
		}
		if l := c.logs["s1"].String(); !strings.Contains(l, "it is older") || strings.Count(l, "cannot be used") != 4 {
			t.Error(l)
		}

		// A list that gets old locks nobody out, and stays in force.
		put(t, c.files["s1"].CRL, before)
		c.revoke(time.Hour, "w1")
		c.revoke(time.Hour)
		time.Sleep(2 * time.Hour)
		c.well("s1", "s2", "s2", "s1")
		if _, se, _ := shake(t, api, c.worker); ReasonOf(se) != ReasonRevoked {
			t.Error("after the list became old:", se)
		}
		if l := c.logs["s1"].String(); !strings.Contains(l, "was to be replaced by") || !strings.Contains(l, "leasehold tls revoke") {
			t.Error(l)
		}
		if _, err := Open(c.files["s1"], "leasehold", c.stores["s1"].log); err == nil || !strings.Contains(err.Error(), "leasehold tls revoke") || !strings.Contains(err.Error(), "crl.pem") {
			t.Error("a start with an old list:", err)
		}
		if len(told) != 1 {
			t.Error("told", told)
		}

		// A server whose own certificate is revoked says so, and refuses others
		// that are all the same.
		c.revoke(time.Hour, "s1")
		time.Sleep(lookEvery)
		if se, _ := c.dial("s1", "s2"); ReasonOf(se) != ReasonRevoked {
			t.Error(se)
		}
		c.stores["s1"].look()
		if l := c.logs["s1"].String(); !strings.Contains(l, "s1.pem: certificate of") || !strings.Contains(l, "has revoked it") {
			t.Error(l)
		}
		if _, err := Open(c.files["s1"], "leasehold", c.stores["s1"].log); ReasonOf(err) != ReasonRevoked {
			t.Error(err)
		}
	})
}

// Handshakes from several sides while files are replaced over and over: none is
// refused.
func TestReloadUnderLoad(t *testing.T) {
	c := newCluster(t, day1, true, "s1", "s2")
	c.stores["s1"].OnRevoked(func(string) { c.stores["s1"].Certificates() })
	raft, peer, api := c.stores["s1"].Config(UseRaft), c.stores["s2"].Config(UsePeer), c.stores["s1"].Config(UseAPI)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				c.stores["s1"].next.Store(0) // a second has gone by
				c.stores["s2"].next.Store(0)
				if _, se, ce := shake(t, raft, peer); se != nil || ce != nil {
					t.Error(se, ce)
				}
				if _, se, ce := shake(t, api, c.worker); se != nil || ce != nil {
					t.Error(se, ce)
				}
			}
		})
	}
	first := c.stores["s1"].Certificates()[0].Serial
	for range 30 {
		for _, name := range []string{"s1", "s2"} {
			c.renew(c.a, name, day1)
		}
		c.revoke(day1)
		if err := c.stores["s1"].Reload(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
	if c.stores["s1"].Certificates()[0].Serial == first {
		t.Error("nothing was replaced")
	}
}

func TestFilesAreLookedAtOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, day1, false, "s1", "s2")
		serial := c.stores["s1"].Certificates()[0].Serial
		time.Sleep(lookEvery - time.Millisecond)
		c.renew(c.a, "s1", day1)
		c.well("s1", "s2", "s2", "s1")
		if c.stores["s1"].Certificates()[0].Serial != serial {
			t.Error("looked at too early")
		}
		time.Sleep(time.Millisecond)
		c.well("s2", "s1")
		if c.stores["s1"].Certificates()[0].Serial == serial {
			t.Error("not looked at")
		}
	})
}

func TestKeyThatEverybodyMayReadIsTold(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files there have no such modes")
	}
	dir := t.TempDir()
	f, _ := issue(t, authority(t, dir, "leasehold"), dir, access.Server, "s1", day1)
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true} {
		if err := os.Chmod(f.Key, mode); err != nil {
			t.Fatal(err)
		}
		if _, l := open(t, f, "leasehold"); strings.Contains(l.String(), f.Key) != want {
			t.Errorf("mode %o: %q", mode, l)
		}
	}
}
