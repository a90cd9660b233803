// Package access says who somebody is and what that allows: identities, roles,
// and the keyspaces and keys that each may touch. It decides nothing about how an
// identity is proven; package ownership/auth does, from certificates and
// credentials.
//
// It is pure: no goroutine, clock, socket or random number. All values may be used
// by several goroutines as long as nobody writes to them.
package access
