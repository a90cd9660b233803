package gossip

import (
	"fmt"
	"strings"
	"time"
)

// Role says what kind of process a member is.
type Role string

// Roles.
const (
	RoleServer Role = "server"
	RoleWorker Role = "worker"
)

// Status is what this process believes of a member.
type Status uint8

// Statuses. memberlist does not show its suspicions: a suspect is Alive until
// it is Dead.
const (
	Alive   Status = iota + 1
	Leaving        // said that it is about to leave
	Left           // said goodbye
	Dead           // did not answer
)

// String returns the word for s.
func (s Status) String() string {
	switch s {
	case Alive:
		return "alive"
	case Leaving:
		return "leaving"
	case Left:
		return "left"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Member is a copy of what is known of one member.
type Member struct {
	Name   string // see Name
	Addr   string // ip:port of its gossip
	Meta   Meta
	Status Status
	Since  time.Time // local time of the last change of Status or Meta.Boot
}

// Up tells whether the member takes part: Alive or Leaving.
func (m Member) Up() bool { return m.Status == Alive || m.Status == Leaving }

// Gone tells whether the process with this boot generation, or an older one, is
// known not to be there any more. A member that was started again under the
// same name has a higher generation, and news of the old process says nothing
// about it.
func (m Member) Gone(boot uint64) bool {
	if m.Up() {
		return boot < m.Meta.Boot
	}
	return (m.Status == Dead || m.Status == Left) && boot <= m.Meta.Boot
}

// Name returns the gossip name of a server or worker: "s/ID" or "w/ID".
func Name(role Role, id string) string {
	if role == RoleServer {
		return "s/" + id
	}
	return "w/" + id
}

// splitName returns the role and id in a gossip name.
func splitName(name string) (Role, string, error) {
	prefix, id, ok := strings.Cut(name, "/")
	if !ok || id == "" || strings.Contains(id, "/") {
		return "", "", fmt.Errorf("name %.64q is not of the form s/ID or w/ID", name)
	}
	switch prefix {
	case "s":
		return RoleServer, id, nil
	case "w":
		return RoleWorker, id, nil
	}
	return "", "", fmt.Errorf("name %.64q is not of the form s/ID or w/ID", name)
}
