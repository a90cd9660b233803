// Package leaseholdv1 is the native API of Leasehold: the messages and gRPC
// services generated from leasehold.proto, and the few pure helpers that both
// ends must agree on. `make generate` remakes what is generated.
package leaseholdv1
