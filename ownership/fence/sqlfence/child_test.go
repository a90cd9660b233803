package sqlfence_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/sqlfence"
)

// childEnv makes a copy of this test binary play another process.
const childEnv = "SQLFENCE_TEST_CHILD"

func child(role string) error {
	ctx := context.Background()
	n, err := strconv.Atoi(os.Getenv(childEnv + "_DIALECT"))
	if err != nil {
		return err
	}
	b := base{sqlfence.Dialect(n), os.Getenv(childEnv + "_DRIVER"), os.Getenv(childEnv + "_DSN")}
	owner := os.Getenv(childEnv + "_OWNER")
	db, err := sql.Open(b.driver, b.dsn)
	if err != nil {
		return err
	}
	ttl, err := time.ParseDuration(os.Getenv(childEnv + "_TTL"))
	if err != nil {
		return err
	}
	w := &world{b, sqlfence.New(db, b.dialect, sqlfence.WithTTL(ttl)), db}
	in := bufio.NewScanner(os.Stdin)
	switch role {
	case "hold":
		// Holds the row, says so, and commits when it is told to.
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		s := at(1, 5, owner)
		if err := w.f.Guard(ctx, tx, s); err != nil {
			return err
		}
		if err := w.insert(ctx, tx, s); err != nil {
			return err
		}
		fmt.Println("holding")
		in.Scan()
		fmt.Println("commit:", tx.Commit())
		return nil
	case "race":
		// Takes over again and again with the token it is given, and writes
		// until it is refused.
		for in.Scan() {
			var token fence.Token
			if _, err := fmt.Sscan(in.Text(), &token); err != nil {
				return err
			}
			stamp := at(1, token, owner)
			if err := w.f.Claim(ctx, []fence.Stamp{stamp}); err != nil {
				fmt.Println("refused", err)
				continue
			}
			n := 0
			var err error
			// Without a breath between writes SQLite's lock is never free when
			// the other process happens to look.
			breath := time.NewTicker(20 * time.Millisecond)
			for err == nil {
				if err = w.write(ctx, stamp); err == nil {
					n++
					<-breath.C
				}
			}
			breath.Stop()
			fmt.Println("wrote", n, err)
		}
		return in.Err()
	}
	return fmt.Errorf("no such role %q", role)
}

// process is a child that talks in lines.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (w *world) start(t *testing.T, role, owner string, ttl time.Duration) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(os.Environ(), childEnv+"="+role, childEnv+"_DIALECT="+strconv.Itoa(int(w.dialect)), childEnv+"_DRIVER="+w.driver,
		childEnv+"_DSN="+w.dsn, childEnv+"_OWNER="+owner, childEnv+"_TTL="+ttl.String())
	p.Stderr = os.Stderr
	var err error
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.in.Close()
		p.Process.Kill()
		p.Wait()
	})
	return p
}

// line is the next one that the child prints.
func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.out.Scan() {
		t.Fatal("a child process ended early")
	}
	return p.out.Text()
}
