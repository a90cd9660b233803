package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/raftstore/backup"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
)

func newBackupSaveCommand(e env) *cobra.Command {
	var dir string
	var force bool
	cmd := &cobra.Command{
		Use:   "save FILE|-",
		Short: "Save the whole state of the cluster into a file",
		Long: `Save the whole state of the cluster into a file, while it goes on working: all
that was acknowledged before the call is in it, as of one log index. The leader
is read, whichever server is asked. Every block is checked as it comes; the file
appears under its name when all of it is on disk, so a backup that was broken
off leaves none.

A backup holds secrets, the hashes of credentials and the keys of gossip. Its file is
for its owner alone to read; keep copies as you keep keys.

With --data-dir the backup is made of a stopped server's data directory, for a
cluster that has lost its majority for good: the newest snapshot that can be read
and every log entry after it. Of several survivors save the one that has more, see
leasehold backup inspect --data-dir.`,
		Example: `  leasehold backup save /backups/leasehold-monday
  leasehold backup save - | ssh backuphost 'cat > leasehold-monday'
  leasehold backup save rescue --data-dir /var/lib/leasehold   # of a stopped server`,
		Args: exactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" && e.isTerminal(e.stdout) {
				return usage("a backup is no text: redirect standard output into a file, or name one")
			}
			if args[0] == "" {
				return usage("FILE is empty: name the file to write, or - for standard output")
			}
			out, err := createBackup(e, args[0], force)
			if err != nil {
				return err
			}
			begun := time.Now()
			m, err := saveBackup(cmd.Context(), e, dir, out)
			if err == nil {
				err = out.commit()
			}
			if err != nil {
				return errors.Join(err, out.discard())
			}
			return reportSaved(e, args[0], &backupResult{File: args[0], Bytes: out.bytes, Seconds: time.Since(begun).Seconds(), Manifest: m})
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", "", "data `directory` of a stopped server to save from")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file of that name")
	return cmd
}

func reportSaved(e env, name string, res *backupResult) error {
	if name == "-" {
		e.stdout = e.stderr // the backup itself is there
	}
	if e.json() {
		return printJSON(e.stdout, res)
	}
	if err := warnMissing(e, &res.Manifest); err != nil {
		return err
	}
	return e.say("saved %s: %s, %s, in %.1f s", name, sizeText(res.Bytes), describeBackup(&res.Manifest), res.Seconds)
}

// saveBackup writes a backup of the cluster, or of a data directory.
func saveBackup(ctx context.Context, e env, dir string, out *backupFile) (backup.Manifest, error) {
	w := bufio.NewWriterSize(out, 1<<20)
	if dir != "" {
		v, m, err := readDataDir(dir)
		if err != nil {
			return m, err
		}
		if _, err := backup.Write(w, m, v.State.Snapshot()); err != nil {
			return m, err
		}
		return m, w.Flush()
	}
	c, err := e.connect()
	if err != nil {
		return backup.Manifest{}, err
	}
	defer c.Close()
	m, err := receiveBackup(ctx, e, c, w)
	if out.err != nil {
		return m, out.err // and not that reading was broken off
	}
	if err != nil {
		return m, err
	}
	return m, w.Flush()
}

// receiveBackup copies a backup from the servers, and checks it on the way. It
// begins anew with another server as long as nothing has come.
func receiveBackup(ctx context.Context, e env, c *client.Client, w io.Writer) (backup.Manifest, error) {
	deadline := time.Now().Add(e.flags.timeout.d)
	for {
		in, err := openBackupStream(ctx, e, c)
		if err == nil {
			defer in.close()
			p := newProgress(e)
			defer p.done()
			m, err := backup.Check(io.TeeReader(&metered{r: in, p: p, verb: "saving", total: in.total}, w))
			if in.err != nil {
				err = fmt.Errorf("save backup: %w", in.err)
			}
			return m, err
		}
		if !client.Detail(err).Retryable() || time.Now().After(deadline) {
			return backup.Manifest{}, fmt.Errorf("save backup: %w", err)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return backup.Manifest{}, context.Cause(ctx)
		}
	}
}

// backupStream is a backup on its way from a server, as a reader.
type backupStream struct {
	ctx     context.Context // ours: the stream's is also done when it has failed
	stream  grpc.ServerStreamingClient[leaseholdv1.SaveBackupResponse]
	cancel  context.CancelCauseFunc
	silence time.Duration // how long a server may say nothing
	total   int64
	rest    []byte
	err     error // why it broke off; nil at its end
}

// openBackupStream returns when the first part has come.
func openBackupStream(ctx context.Context, e env, c *client.Client) (*backupStream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &backupStream{ctx: ctx, cancel: cancel, silence: e.flags.timeout.d}
	var err error
	if s.stream, err = c.Cluster().SaveBackup(ctx, &leaseholdv1.SaveBackupRequest{}); err == nil {
		err = s.receive()
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *backupStream) close() { s.cancel(nil) }

// receive takes the next message. A server that falls silent is not waited for.
func (s *backupStream) receive() error {
	timer := time.AfterFunc(s.silence, func() {
		s.cancel(fmt.Errorf("nothing came from the server for %v", s.silence))
	})
	m, err := s.stream.Recv()
	timer.Stop()
	if cause := context.Cause(s.ctx); err != nil && !errors.Is(err, io.EOF) && cause != nil {
		return cause // silence, or a signal; not what became of the stream
	}
	s.rest, s.total = m.GetData(), m.GetTotalBytes()
	return err
}

// Read implements io.Reader.
func (s *backupStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if err := s.receive(); err != nil {
			if !errors.Is(err, io.EOF) {
				s.err = err
			}
			return 0, err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// backupFile is FILE.tmp until it is complete, or standard output. It is locked
// meanwhile, so that two do not write it at once.
type backupFile struct {
	name  string // where it will be
	force bool
	f     *os.File // nil for standard output
	w     io.Writer
	bytes int64
	err   error
}

func createBackup(e env, name string, force bool) (*backupFile, error) {
	if name == "-" {
		return &backupFile{w: e.stdout}, nil
	}
	b := &backupFile{name: name, force: force}
	if err := b.mayCreate(); err != nil {
		return nil, err
	}
	f, err := openLocked(b.temporary())
	if err != nil {
		return nil, err
	}
	b.f, b.w = f, f
	return b, nil
}

func (b *backupFile) temporary() string { return b.name + ".tmp" }

// mayCreate refuses to replace something that was not meant to be.
func (b *backupFile) mayCreate() error {
	info, err := os.Lstat(b.name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &codedError{exitRefused, fmt.Errorf("%s is there and no plain file", b.name)}
	case !b.force:
		return &codedError{exitRefused, &hintError{fmt.Errorf("%s is there already", b.name), "choose another name, or replace it with --force"}}
	}
	return nil
}

// openLocked opens a file that only this process writes, empty.
func openLocked(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lockFile(f); err != nil {
			return nil, errors.Join(&codedError{exitRefused, fmt.Errorf("%s: another backup is being saved there", name)}, f.Close())
		}
		// Whoever had it before may have given it its name meanwhile.
		mine, err := f.Stat()
		if err == nil {
			var there os.FileInfo
			if there, err = os.Lstat(name); err == nil && os.SameFile(mine, there) {
				if err = errors.Join(f.Truncate(0), f.Chmod(0o600)); err == nil {
					return f, nil
				}
				return nil, errors.Join(err, f.Close())
			}
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

func (b *backupFile) Write(p []byte) (int, error) {
	n, err := b.w.Write(p)
	b.bytes += int64(n)
	if err != nil {
		b.err = fmt.Errorf("write backup: %w (%s were written, %s)", err, sizeText(b.bytes), b.fate())
		return n, b.err
	}
	return n, nil
}

// fate tells what a backup that was broken off has left.
func (b *backupFile) fate() string {
	if b.f == nil {
		return "what reads them has no whole backup"
	}
	return b.name + " was left as it was"
}

// commit gives the file its name once it is on disk.
func (b *backupFile) commit() error {
	if b.f == nil {
		return nil
	}
	if err := b.f.Sync(); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	if err := b.mayCreate(); err != nil {
		return err
	}
	if err := os.Rename(b.temporary(), b.name); err != nil {
		return fmt.Errorf("write backup: %w", err)
	}
	return errors.Join(syncParent(b.name), b.f.Close())
}

// discard removes what was written.
func (b *backupFile) discard() error {
	if b.f == nil {
		return nil
	}
	err := os.Remove(b.temporary())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	_ = b.f.Close() // closed already if the last step failed
	return err
}
