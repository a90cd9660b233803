// Package identity reads the files that say who a process is to the servers, and
// which servers it believes. Only names of files are passed between processes.
package identity

import (
	"crypto/tls"
	"fmt"

	"github.com/leasehold-dev/leasehold/ownership/client"
	"github.com/leasehold-dev/leasehold/ownership/pki"
)

// Files are their names. The zero value talks to servers without TLS.
type Files struct {
	TLS        pki.Files `json:"tls,omitzero"`
	Credential string    `json:"credential,omitempty"` // in place of an own certificate
}

// Open reads the files; they are read again when they change. Without any, both
// results are nil.
func (f Files) Open() (*tls.Config, client.Credential, error) {
	switch {
	case !f.TLS.Any() && f.Credential == "":
		return nil, nil, nil
	case f.TLS.CA == "" && f.Credential != "":
		return nil, nil, fmt.Errorf("--credential-file without --tls-ca-file: %w", client.ErrCredentialInPlain)
	}
	cfg, err := pki.Client(f.TLS)
	if err != nil || f.Credential == "" {
		return cfg, nil, err
	}
	credential, err := client.CredentialFile(f.Credential)
	if err != nil {
		return nil, nil, err
	}
	return cfg, credential, nil
}
