package grpcfence_test

import (
	"errors"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/grpcfence"
)

// Metadata that is accepted says the same when it is written again: no stamp has
// two spellings.
func FuzzParseStamp(f *testing.F) {
	f.Add(grpcfence.KeyKeyspace, "orders", grpcfence.KeyOwner, "w1", "17", "34", "")
	f.Add(grpcfence.KeyKeyspace+"-bin", "a b", grpcfence.KeyOwner+"-bin", "w\xc3\xb6", "0", "9007199254740991", "ledger")
	f.Fuzz(func(t *testing.T, keyspaceKey, keyspace, ownerKey, owner, partition, token, resource string) {
		md := metadata.MD{}
		md.Append(keyspaceKey, keyspace)
		md.Append(ownerKey, owner)
		md.Append(grpcfence.KeyPartition, partition)
		md.Append(grpcfence.KeyToken, token)
		if resource != "" {
			md.Append(grpcfence.KeyResource, resource)
		}
		s, err := grpcfence.ParseStamp(md)
		if err != nil {
			if !errors.Is(err, fence.ErrInvalid) && !errors.Is(err, grpcfence.ErrMissing) {
				t.Fatalf("got %v", err)
			}
			return
		}
		again := metadata.MD{}
		if err := grpcfence.SetStamp(again, s); err != nil {
			t.Fatalf("accepted %+v, which may not be sent: %v", s, err)
		}
		if back, err := grpcfence.ParseStamp(again); err != nil || back != s {
			t.Fatalf("%+v comes back as %+v, %v", s, back, err)
		}
	})
}
