package main

import (
	"strconv"

	"github.com/spf13/cobra"
)

// waitUsage is that of --wait.
const waitUsage = "how long to wait for the turn, 0: not at all (default for ever)"

// commandExit is what the commands with CMD say about exit codes.
const commandExit = `Exit codes: CMD's own, or 128 + signal; 75 the session was lost; 126 or 127 CMD cannot be
run; 5 it was not its turn within --wait; else as for all commands.`

// optionalCommand takes what is after --, if there is one. before are the
// arguments in front of it.
func optionalCommand(cmd *cobra.Command, args []string, before ...string) (command []string, err error) {
	dash := cmd.ArgsLenAtDash()
	if dash < 0 {
		return nil, exactArgs(before...)(cmd, args)
	}
	if err := exactArgs(before...)(cmd, args[:dash]); err != nil {
		return nil, err
	}
	return commandAfterDash(cmd, args, len(before))
}

// commandArgs is the Args of a command with CMD after --; needed says that it
// cannot do without.
func commandArgs(needed bool, before ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		command, err := optionalCommand(cmd, args, before...)
		if err == nil && needed && command == nil {
			return usage("CMD is missing: %s", cmd.UseLine())
		}
		return err
	}
}

// queueFlags are those of a command that waits in a queue.
type queueFlags struct {
	placeFlags
	wait  waitFlag
	value string
}

func (q *queueFlags) define(cmd *cobra.Command) {
	q.placeFlags.define(cmd)
	cmd.Flags().Var(&q.wait, "wait", waitUsage)
	cmd.Flags().Lookup("wait").DefValue = ""
}

// seat is what the flags ask for.
func (q *queueFlags) seat(cmd *cobra.Command, name string, command []string) (*seat, error) {
	if name == "" {
		return nil, usage("NAME is empty")
	}
	s := &seat{flags: &q.placeFlags, name: name, value: q.value, slots: 1, wait: -1, command: command}
	if s.value == "" {
		s.value = whoami()
	}
	if cmd.Flags().Changed("wait") {
		s.wait = q.wait.d
	}
	return s, nil
}

func newLockCommand(e env) *cobra.Command {
	var q queueFlags
	cmd := &cobra.Command{
		Use:   "lock NAME [flags] [-- CMD [ARG]...]",
		Short: "Run a command while holding a lock, first come, first served",
		Long: `lock waits for its turn, runs CMD once while it holds the lock NAME, gives it back and
ends with CMD's exit code. CMD finds in its environment LEASEHOLD_TOKEN, the fencing
token of this turn, higher than that of every turn before; LEASEHOLD_LOCK_KEY and
LEASEHOLD_LOCK_REVISION, the key of its place and the revision that created it; and
LEASEHOLD_SESSION, which keys can be put under. It should give the token to what it writes
to: only a resource that refuses an older one is safe from a process that was paused.

SIGTERM and SIGINT stop CMD first; the lock is given back when nothing of it is left. If the
session is lost (no keep-alive was acknowledged in time), CMD's process group gets SIGTERM
and then SIGKILL before somebody else can have the lock, and lock ends with 75. A second
signal ends it at once; the lock is then free after the TTL.

Without CMD the key and the token are printed, and the lock is held until a signal.

Locks are made of the keys NAME/…, as etcd's own, and etcdctl and etcd's libraries stand
in the same queue; other keys that begin with NAME/ do not matter.

` + commandExit,
		Example: `  leasehold lock nightly -- ./report.sh
  leasehold lock nightly --wait 0 -- ./report.sh      # only if nobody else has it: exit code 5 else
  leasehold lock deploy --ttl 30s -- sh -c 'psql -v token=$LEASEHOLD_TOKEN -f migrate.sql'
  leasehold lock maintenance                          # held until Ctrl-C`,
		Args: commandArgs(false, "NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			command, err := optionalCommand(cmd, args, "NAME")
			if err != nil {
				return err
			}
			s, err := q.seat(cmd, args[0], command)
			if err != nil {
				return err
			}
			return s.take(cmd.Context(), e)
		},
	}
	q.define(cmd)
	cmd.Flags().StringVar(&q.value, "value", "", "what those who wait see of the holder (default host name and process)")
	return cmd
}

func newElectCommand(e env) *cobra.Command {
	var q queueFlags
	var listen bool
	cmd := &cobra.Command{
		Use:   "elect NAME VALUE [flags] [-- CMD [ARG]...]",
		Short: "Stand for election, and lead while a command runs; or watch who leads",
		Long: `elect stands for the election NAME, with VALUE as what others see of the leader (an
address, say). When it leads it runs CMD once, with the variables of lock, and steps down
when CMD has ended. Without CMD the key and the token are printed, and it leads until a
signal.

With -l it prints the leader's VALUE now and at each change, an empty line when nobody
leads; with -o json the leader's key and value, one object a line.

` + commandExit,
		Example: `  leasehold elect scheduler 10.0.0.7:8080 -- ./scheduler
  leasehold elect -l scheduler | while read -r leader; do echo "now $leader"; done`,
		Args: func(cmd *cobra.Command, args []string) error {
			if listen {
				return exactArgs("NAME")(cmd, args)
			}
			return commandArgs(false, "NAME", "VALUE")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if listen {
				return observe(cmd.Context(), e, args[0])
			}
			command, err := optionalCommand(cmd, args, "NAME", "VALUE")
			if err != nil {
				return err
			}
			q.value = args[1]
			s, err := q.seat(cmd, args[0], command)
			if err != nil {
				return err
			}
			s.value = args[1] // also an empty one
			return s.take(cmd.Context(), e)
		},
	}
	q.define(cmd)
	cmd.Flags().BoolVarP(&listen, "listen", "l", false, "print who leads, now and at each change")
	return cmd
}

// maxSlots bounds a semaphore.
const maxSlots = 1_000_000

func newSemaphoreCommand(e env) *cobra.Command {
	var q queueFlags
	cmd := &cobra.Command{
		Use:   "semaphore NAME N [flags] -- CMD [ARG]...",
		Short: "Run a command while at most N of its kind run",
		Long: `semaphore waits until it is among the first N in the queue NAME, runs CMD once, gives its
place back and ends with CMD's exit code. All who use NAME must give the same N. CMD finds
the variables of lock; tokens rise with the places in the queue, but N of them are valid at a
time.

` + commandExit,
		Example: `  leasehold semaphore uploads 3 -- rsync -a /data backup:/data
  leasehold semaphore uploads 3 --wait 1m -- ./upload.sh`,
		Args: commandArgs(true, "NAME", "N"),
		RunE: func(cmd *cobra.Command, args []string) error {
			command, err := optionalCommand(cmd, args, "NAME", "N")
			if err != nil {
				return err
			}
			slots, err := strconv.ParseUint(args[1], 10, 32)
			if err != nil || slots < 1 || slots > maxSlots {
				return usage("N %q: want a number from 1 to %d", args[1], maxSlots)
			}
			s, err := q.seat(cmd, args[0], command)
			if err != nil {
				return err
			}
			s.slots = uint32(slots)
			return s.take(cmd.Context(), e)
		},
	}
	q.define(cmd)
	cmd.Flags().StringVar(&q.value, "value", "", "what others see of the place (default host name and process)")
	return cmd
}

func newSessionCommand(e env) *cobra.Command {
	var p placeFlags
	cmd := &cobra.Command{
		Use:   "session [flags] [-- CMD [ARG]...]",
		Short: "Run a command under a session, which keys can be put under",
		Long: `session opens a session, runs CMD with its number in LEASEHOLD_SESSION, ends it and
returns CMD's exit code. Keys that CMD puts with --session live as long as the session:
they are deleted, all in one revision, when CMD has ended or when this machine has been
silent for the TTL. That is how a service is registered and how a group knows its members.

If the session is lost, CMD's process group gets SIGTERM and then SIGKILL, and the exit
code is 75. Without CMD the number is printed, and the session lasts until a signal.`,
		Example: `  leasehold session -- sh -c 'leasehold kv put members/a 10.0.0.7:80 --session $LEASEHOLD_SESSION && exec ./service'
  leasehold session --ttl 5s`,
		Args: commandArgs(false),
		RunE: func(cmd *cobra.Command, args []string) error {
			command, err := optionalCommand(cmd, args)
			if err != nil {
				return err
			}
			return (&seat{flags: &p, wait: -1, command: command}).take(cmd.Context(), e)
		},
	}
	p.define(cmd)
	return cmd
}
