package dbtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

const postgresBin = "/usr/lib/postgresql/*/bin/"

// StartPostgreSQL starts PostgreSQL for a test. Settings are "name=value".
func StartPostgreSQL(t testing.TB, settings ...string) *Instance {
	t.Helper()
	return cleanedUp(t, func() (*Instance, error) { return startPostgreSQL(settings) })
}

// StartMariaDB starts MariaDB for a test. Options are those of mariadbd.
func StartMariaDB(t testing.TB, options ...string) *Instance {
	t.Helper()
	return cleanedUp(t, func() (*Instance, error) { return startMariaDB(options) })
}

// StartRedis starts Redis for a test. Options are those of redis-server.
func StartRedis(t testing.TB, options ...string) *Instance {
	t.Helper()
	return cleanedUp(t, func() (*Instance, error) { return startRedis(options) })
}

// StartPgBouncer starts a pooler in transaction mode in front of a PostgreSQL,
// with at most pool connections to it.
func StartPgBouncer(t testing.TB, postgres *Instance, pool int) *Instance {
	t.Helper()
	return cleanedUp(t, func() (*Instance, error) { return startPgBouncer(postgres, pool) })
}

func cleanedUp(t testing.TB, f func() (*Instance, error)) *Instance {
	t.Helper()
	i, err := f()
	if err != nil {
		skip(t, err)
	}
	t.Cleanup(i.stop)
	return i
}

// Shared starts a server for all the tests of a package, when the first of them
// asks for it. Make it a package variable and call Stop in TestMain.
type Shared struct {
	start func() (*Instance, error)

	once sync.Once
	i    *Instance
	err  error
}

// SharedPostgreSQL names the server and its settings; nothing is started yet.
func SharedPostgreSQL(settings ...string) *Shared {
	return &Shared{start: func() (*Instance, error) { return startPostgreSQL(settings) }}
}

// SharedMariaDB is like SharedPostgreSQL.
func SharedMariaDB(options ...string) *Shared {
	return &Shared{start: func() (*Instance, error) { return startMariaDB(options) }}
}

// SharedRedis is like SharedPostgreSQL.
func SharedRedis(options ...string) *Shared {
	return &Shared{start: func() (*Instance, error) { return startRedis(options) }}
}

// Get returns the running server, or skips (fails) the test.
func (s *Shared) Get(t testing.TB) *Instance {
	t.Helper()
	s.once.Do(func() { s.i, s.err = s.start() })
	if s.err != nil {
		skip(t, s.err)
	}
	return s.i
}

// Stop ends the server if it was started.
func (s *Shared) Stop() {
	s.once.Do(func() { s.err = errors.New("stopped") })
	if s.i != nil {
		s.i.stop()
	}
}

func startPostgreSQL(settings []string) (*Instance, error) {
	initdb, err := find("initdb", "postgresql", postgresBin+"initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := find("postgres", "postgresql", postgresBin+"postgres")
	if err != nil {
		return nil, err
	}
	cred, in, port, err := place("postgresql", "postgres")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(in, "data")
	if err := runAs(cred, in, initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(in))
	}
	argv := []string{postgres, "-D", data, "-p", strconv.Itoa(port), "-k", in, "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"}
	for _, s := range settings {
		argv = append(argv, "-c", s)
	}
	isReady, _ := exec.LookPath("pg_isready")
	ready := func(ctx context.Context, i *Instance) error {
		if isReady == "" {
			return accepts(ctx, i)
		}
		return exec.CommandContext(ctx, isReady, "-q", "-h", i.Host, "-p", strconv.Itoa(i.Port)).Run()
	}
	return start(in, cred, port, ready, argv...)
}

// PostgreSQLDSN is the URL of a database of a PostgreSQL or PgBouncer instance,
// for pgx. Every instance has the database "postgres".
func (i *Instance) PostgreSQLDSN(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", i.Addr(), database)
}

func startMariaDB(options []string) (*Instance, error) {
	install, err := find("mariadb-install-db", "mariadb-server")
	if err != nil {
		return nil, err
	}
	mariadbd, err := find("mariadbd", "mariadb-server", "/usr/sbin/mariadbd")
	if err != nil {
		return nil, err
	}
	cred, in, port, err := place("mariadb", "mysql")
	if err != nil {
		return nil, err
	}
	data := filepath.Join(in, "data")
	if err := runAs(cred, in, install, "--no-defaults", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(in))
	}
	argv := append([]string{
		mariadbd, "--no-defaults", "--datadir=" + data, "--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port),
		"--socket=" + filepath.Join(in, "s"), "--pid-file=" + filepath.Join(in, "pid"), "--skip-name-resolve", "--skip-grant-tables", "--skip-networking=0",
		"--innodb-buffer-pool-size=64M", "--max-connections=200",
	}, options...)
	return start(in, cred, port, greets, argv...)
}

// greets waits for a server that speaks first, as MariaDB does.
func greets(ctx context.Context, i *Instance) error {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	if d, ok := ctx.Deadline(); ok {
		_ = c.SetReadDeadline(d)
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

// MySQLDSN is the data source name of a database of a MariaDB instance, for
// go-sql-driver/mysql. Every instance has the database "mysql"; tests make
// their own.
func (i *Instance) MySQLDSN(database string) string {
	return fmt.Sprintf("root@tcp(%s)/%s", i.Addr(), database)
}

func startRedis(options []string) (*Instance, error) {
	redis, err := find("redis-server", "redis-server")
	if err != nil {
		return nil, err
	}
	cred, in, port, err := place("redis", "redis")
	if err != nil {
		return nil, err
	}
	argv := append([]string{redis, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", in, "--save", "", "--daemonize", "no"}, options...)
	pong := func(ctx context.Context, i *Instance) error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.Addr())
		if err != nil {
			return err
		}
		defer c.Close()
		if d, ok := ctx.Deadline(); ok {
			_ = c.SetDeadline(d)
		}
		if _, err := c.Write([]byte("PING\r\n")); err != nil {
			return err
		}
		b := make([]byte, 5)
		if _, err := c.Read(b); err != nil {
			return err
		}
		if string(b) != "+PONG" {
			return fmt.Errorf("answered %q", b)
		}
		return nil
	}
	return start(in, cred, port, pong, argv...)
}

func startPgBouncer(postgres *Instance, pool int) (*Instance, error) {
	pgbouncer, err := find("pgbouncer", "pgbouncer", "/usr/sbin/pgbouncer")
	if err != nil {
		return nil, err
	}
	cred, in, port, err := place("pgbouncer", "postgres")
	if err != nil {
		return nil, err
	}
	users, conf := filepath.Join(in, "users"), filepath.Join(in, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=127.0.0.1 port=%d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %d
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
`, postgres.Port, port, pool)
	if err := errors.Join(os.WriteFile(users, nil, 0o644), os.WriteFile(conf, []byte(text), 0o644)); err != nil {
		return nil, errors.Join(err, os.RemoveAll(in))
	}
	return start(in, cred, port, accepts, pgbouncer, conf)
}
