package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-dev/leasehold/raftstore/access"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// Credential returns the token to present, lhc_…, and is asked for it with each
// call. It may be called by several goroutines at a time, and must be quick.
type Credential func() (token string, err error)

// DialOption presents the credential with each call of a gRPC client that is not
// made by this package. Without TLS such a client is refused when it is made.
func (c Credential) DialOption() grpc.DialOption { return grpc.WithPerRPCCredentials(bearer{c}) }

// ErrCredentialInPlain refuses a credential without TLS: nothing has been sent.
var ErrCredentialInPlain = errors.New("a credential is sent over TLS only, and there is none: whoever hears a token can use it; give the file of the servers' authority too. A server without TLS asks for no credential")

// maxCredentialFile is far above the length of a token.
const maxCredentialFile = 4096

// CredentialFile is the credential in a file, as `leasehold credential create`
// writes it. The file is read now, and again when it has changed; while it
// cannot be read or has no token, as in the moment of being written, the one of
// before remains.
func CredentialFile(path string) (Credential, error) {
	f := &credentialFile{path: path}
	if err := f.look(); err != nil {
		return nil, err
	}
	return f.token, nil
}

type credentialFile struct {
	path string

	mu    sync.Mutex // guards what follows
	seen  os.FileInfo
	value string
}

func (f *credentialFile) token() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.look(); err != nil && f.value == "" {
		return "", err
	}
	return f.value, nil
}

// look reads the file if it is another than when it was read last.
func (f *credentialFile) look() error {
	now, err := os.Stat(f.path)
	switch {
	case err != nil && strings.Contains(f.path, "lhc_"):
		return errors.New("credential file: this looks like a credential itself: want the path of a file that holds it; whoever has seen it here can use it, revoke it")
	case err != nil:
		return fmt.Errorf("credential file: %w", err)
	case f.seen != nil && os.SameFile(now, f.seen) && now.ModTime().Equal(f.seen.ModTime()) && now.Size() == f.seen.Size():
		return nil
	}
	value, err := readToken(f.path)
	if err != nil {
		return err
	}
	// One that was written just now may be written again within the same tick
	// of the file system's clock.
	f.seen, f.value = now, value
	if time.Since(now.ModTime()) < time.Second {
		f.seen = nil
	}
	return nil
}

// readToken never puts a part of the file into an error.
func readToken(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("credential file: %w", err)
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxCredentialFile+1))
	if err != nil {
		return "", fmt.Errorf("credential file: %w", err)
	}
	token := strings.TrimSpace(string(raw))
	if len(raw) > maxCredentialFile || !isToken(token) {
		return "", fmt.Errorf("credential file %s: holds no credential: want one line, lhc_…, as `leasehold credential create` writes it", path)
	}
	return token, nil
}

func isToken(s string) bool {
	_, _, err := access.ParseToken(s)
	return err == nil
}

// bearer puts a credential on each call. gRPC makes the second check that the
// connection is encrypted.
type bearer struct{ of Credential }

var _ credentials.PerRPCCredentials = bearer{}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.of()
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return true }
