package access

import (
	"fmt"
	"strings"
)

// Role is the kind of thing that somebody may do. The zero Role may do nothing.
// Numbers are in logs and snapshots and are never reused.
type Role uint8

// The roles, as certificates and credentials name them.
const (
	Reader   Role = 1 // looks, and changes nothing
	Worker   Role = 2 // owns partitions, and uses keys
	Operator Role = 3 // runs the cluster
	Server   Role = 4 // is a part of the cluster; only a certificate can say so
)

var roleNames = map[Role]string{Reader: "reader", Worker: "worker", Operator: "operator", Server: "server"}

// String is the word for a role, "none" for the zero one.
func (r Role) String() string {
	if name, ok := roleNames[r]; ok {
		return name
	}
	if r == 0 {
		return "none"
	}
	return fmt.Sprintf("role %d", uint8(r))
}

// Known reports whether r is one of the roles.
func (r Role) Known() bool { return roleNames[r] != "" }

// ParseRole finds a role by its word. The error lists the words.
func ParseRole(word string) (Role, error) {
	for r, name := range roleNames {
		if name == word {
			return r, nil
		}
	}
	return 0, fmt.Errorf("role %q: want reader, worker, operator or server", clip(word))
}

// clip shortens a value for an error.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= 64 {
		return s
	}
	return strings.ToValidUTF8(s[:64], "") + "…"
}
