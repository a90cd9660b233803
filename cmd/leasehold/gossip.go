package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ring/gossip"
)

func newGossipCommand(e env) *cobra.Command {
	keyring := group("keyring", "Look at the keys that encrypt gossip, and change them",
		`  leasehold gossip keyring generate --out gossip.key   # before the first start
  leasehold gossip keyring add
  leasehold gossip keyring status --wait
  leasehold gossip keyring use 1f0c33d9
  leasehold gossip keyring status --wait
  leasehold gossip keyring remove 77d0a2e4`,
		newKeyringGenerateCommand(e), newKeyringStatusCommand(e), newKeyringAddCommand(e), newKeyringUseCommand(e), newKeyringRemoveCommand(e))
	keyring.Long = `Look at the keys that encrypt gossip, and change them while it goes on.

Every key is named by its digest, eight hexadecimal digits; no command shows a
key but generate, which makes one. Servers keep the newest keys in their data
directory, where they win over --gossip-key-file; workers get them over their
session. To change the key: add one, wait until all members have it, use it,
wait until all use it, remove the old one.

A new server, or one with an empty disk, begins with its key file: put the key in
use there, too, if it came from one (add --key-file), or gossip-keyring of another
server's data directory into its own.`
	return group("gossip", "Change the keys that encrypt gossip",
		"  leasehold gossip keyring status\n  leasehold gossip keyring add", keyring)
}

func newKeyringGenerateCommand(e env) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "generate",
		Short: "Make a key for --gossip-key-file",
		Long: `Make a key of 32 random bytes for --gossip-key-file, the same for all servers of a
cluster, and write it in base64: to a new file that only you can read, or to
standard output. Nothing is asked of a server.`,
		Example: "  leasehold gossip keyring generate --out gossip.key",
		Args:    exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			key := make([]byte, gossip.KeyLen)
			_, _ = rand.Read(key) // it never fails
			text := base64.StdEncoding.EncodeToString(key)
			if out == "" {
				return e.say("%s", text)
			}
			if err := absent(out); err != nil {
				return err
			}
			if err := createFile(out, []byte(text+"\n"), keyMode); err != nil {
				return fmt.Errorf("write gossip key: %w", err)
			}
			return e.say("key %s is in %s", gossip.DigestOf(key), out)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "new `file` to write the key to (default standard output)")
	return cmd
}

// keyringWait is how long status --wait waits when it is not told.
const keyringWait = time.Minute

func newKeyringStatusCommand(e env) *cobra.Command {
	wait := durationFlag{max: 24 * time.Hour}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which member has which keys",
		Long: `Show which member has which keys, as the leader sees it through gossip: servers of
the group, workers with a session, and whoever else is alive. The first key of a
member, with a *, is what it encrypts with. The exit code is 0 when all have
acknowledged the newest keyring, and 1 when some have not; with --wait they are
given time for it.`,
		Example: "  leasehold gossip keyring status\n  leasehold gossip keyring status --wait=5m",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := e.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			k, err := awaitKeyring(cmd.Context(), c, wait.d)
			if err != nil {
				return err
			}
			if err := showKeyring(e, k); err != nil {
				return err
			}
			if late := notUpToDate(k); len(late) > 0 {
				return &codedError{exitFailed, fmt.Errorf("not all members have acknowledged version %d of the keyring: %s", k.GetVersion(), strings.Join(late, ", "))}
			}
			return nil
		},
	}
	cmd.Flags().Var(&wait, "wait", "give the members as long as this to acknowledge ("+keyringWait.String()+" if no duration follows)")
	cmd.Flags().Lookup("wait").DefValue = ""
	cmd.Flags().Lookup("wait").NoOptDefVal = keyringWait.String()
	return cmd
}

// awaitKeyring looks again until all members have acknowledged or the time is up.
func awaitKeyring(ctx context.Context, c *client.Client, most time.Duration) (*leaseholdv1.Keyring, error) {
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		k, err := c.Gossip().GetKeyring(ctx, &leaseholdv1.GetKeyringRequest{})
		if err != nil {
			return nil, fmt.Errorf("look at the keys of gossip: %w", err)
		}
		if most == 0 || len(notUpToDate(k)) == 0 {
			return k, nil
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return k, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// notUpToDate names the members that have not acknowledged the newest keyring.
func notUpToDate(k *leaseholdv1.Keyring) (late []string) {
	if !k.GetEncrypted() {
		return nil
	}
	for _, m := range k.GetMembers() {
		if !m.GetUpToDate() {
			late = append(late, m.GetRole()+" "+m.GetId())
		}
	}
	return late
}

func showKeyring(e env, k *leaseholdv1.Keyring) error {
	if e.json() {
		return printMessage(e.stdout, k)
	}
	if !k.GetEncrypted() {
		return e.say("gossip is in the clear: there are no keys")
	}
	cols := []column{col("ROLE"), col("ID"), col("GOSSIP")}
	for _, key := range k.GetKeys() {
		cols = append(cols, col(keyName(key.GetDigest(), key.GetPrimary())))
	}
	t := newTable(e, append(cols, col("UP-TO-DATE"))...)
	for _, m := range k.GetMembers() {
		row := []string{m.GetRole(), m.GetId(), m.GetStatus()}
		for _, key := range k.GetKeys() {
			row = append(row, hasKey(m, key.GetDigest()))
		}
		t.row(append(row, yesNo(m.GetUpToDate()))...)
	}
	return t.print("no member is known")
}

// keyName marks the key that encrypts.
func keyName(digest string, primary bool) string {
	if primary {
		return digest + "*"
	}
	return digest
}

func hasKey(m *leaseholdv1.KeyringMember, digest string) string {
	for i, d := range m.GetDigests() {
		if d == digest {
			return keyName("yes", i == 0)
		}
	}
	return "no"
}

func newKeyringAddCommand(e env) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Give all members one more key",
		Long: `Give all members one more key, which is drawn by the server if no file is given,
and print its digest. Nobody encrypts with it before it is used. There are at most
four keys.`,
		Example: "  leasehold gossip keyring add\n  leasehold gossip keyring add --key-file next.key",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := &leaseholdv1.AddGossipKeyRequest{}
			if file != "" {
				key, err := readKey(file)
				if err == nil {
					err = gossip.CheckKey(key)
				}
				if err != nil {
					return &usageError{fmt.Errorf("--key-file: %w", err)}
				}
				req.Key = key
			}
			return changeKeyring(cmd.Context(), e, "add a gossip key", func(ctx context.Context, c leaseholdv1.GossipServiceClient) (*leaseholdv1.Keyring, error) {
				return c.AddGossipKey(ctx, req)
			}, func(k *leaseholdv1.Keyring) string {
				digest := k.GetKeys()[len(k.GetKeys())-1].GetDigest()
				if len(req.GetKey()) > 0 {
					digest = gossip.DigestOf(req.GetKey()).String()
				}
				return fmt.Sprintf("key %s is added; when all have it (leasehold gossip keyring status --wait): leasehold gossip keyring use %s", digest, digest)
			})
		},
	}
	cmd.Flags().StringVar(&file, "key-file", "", "`file` with 16, 24 or 32 bytes in base64 (default a new key of 32 bytes)")
	return cmd
}

// changeKeyring makes one call that changes the keyring, and says what came of it.
func changeKeyring(ctx context.Context, e env, doing string, call func(context.Context, leaseholdv1.GossipServiceClient) (*leaseholdv1.Keyring, error),
	said func(*leaseholdv1.Keyring) string,
) error {
	c, err := e.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	k, err := call(ctx, c.Gossip())
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if e.json() {
		return printMessage(e.stdout, k)
	}
	if len(k.GetKeys()) == 0 {
		return errors.New(doing + ": the server answered with no key")
	}
	return e.say("%s", said(k))
}

func newKeyringUseCommand(e env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "use DIGEST",
		Short: "Encrypt with a key that all members have",
		Long: `Encrypt with a key from now on. It is refused while a member does not have it, and
the refusal names it; --force does it all the same: until such a member has a
connection to the servers again, it is not heard, and hears nothing.`,
		Example: "  leasehold gossip keyring use 1f0c33d9",
		Args:    exactArgs("DIGEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirmForce(cmd.Context(), e, force, fmt.Sprintf("Use gossip key %s, whoever does not have it?", args[0])); err != nil {
				return err
			}
			return changeKeyring(cmd.Context(), e, "use gossip key "+args[0], func(ctx context.Context, c leaseholdv1.GossipServiceClient) (*leaseholdv1.Keyring, error) {
				return c.UseGossipKey(ctx, &leaseholdv1.UseGossipKeyRequest{Digest: args[0], Force: force})
			}, func(*leaseholdv1.Keyring) string {
				return fmt.Sprintf("gossip is encrypted with %s; the old key can go when all have followed: leasehold gossip keyring status --wait", args[0])
			})
		},
		ValidArgsFunction: completeArgs(e, keyDigests),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while members do not have it")
	return cmd
}

func newKeyringRemoveCommand(e env) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "remove DIGEST",
		Short: "Make all members forget a key",
		Long: `Make all members forget a key that none of them encrypts with any more. It is refused
while one does, or may, and the refusal names it; --force does it all the same. The
key that gossip is encrypted with cannot be removed.`,
		Example: "  leasehold gossip keyring remove 77d0a2e4",
		Args:    exactArgs("DIGEST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirmForce(cmd.Context(), e, force, fmt.Sprintf("Remove gossip key %s, whoever still encrypts with it?", args[0])); err != nil {
				return err
			}
			return changeKeyring(cmd.Context(), e, "remove gossip key "+args[0], func(ctx context.Context, c leaseholdv1.GossipServiceClient) (*leaseholdv1.Keyring, error) {
				return c.RemoveGossipKey(ctx, &leaseholdv1.RemoveGossipKeyRequest{Digest: args[0], Force: force})
			}, func(*leaseholdv1.Keyring) string { return fmt.Sprintf("gossip key %s is removed", args[0]) })
		},
		ValidArgsFunction: completeArgs(e, keyDigests),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while members encrypt with it")
	return cmd
}

// confirmForce asks only who forces.
func confirmForce(ctx context.Context, e env, force bool, question string) error {
	if !force {
		return nil
	}
	return confirm(ctx, e, question)
}

// keyDigests completes digests of keys that are not in use.
func keyDigests(ctx context.Context, c *client.Client) (digests []string, err error) {
	k, err := c.Gossip().GetKeyring(ctx, &leaseholdv1.GetKeyringRequest{})
	for _, key := range k.GetKeys() {
		if !key.GetPrimary() {
			digests = append(digests, key.GetDigest())
		}
	}
	return digests, err
}
