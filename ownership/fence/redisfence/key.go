package redisfence

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-dev/leasehold/ownership/fence"
)

// DataKey is the Redis key of something that a [Command] touches. The type
// tells it from the other words of the command, because Redis wants to know
// the keys of a script beforehand.
type DataKey string

// Tag returns the hash tag of a partition or resource, braces included:
//
//	{orders/17}          partition 17 of the keyspace orders
//	{resource:printer}   the resource printer
//
// In a Redis Cluster everything that is written in one step must lie in one
// slot, so the keys of guarded data contain the tag: see [Under]. A name may
// hold anything; what would end the tag early, or make two tags one, is
// written as %XX.
func Tag(k fence.Key) string {
	if k.Resource != "" {
		return "{resource:" + escape(k.Resource) + "}"
	}
	return "{" + escape(k.Keyspace) + "/" + strconv.FormatUint(uint64(k.Partition), 10) + "}"
}

// Under returns the key of a piece of data that belongs to a partition or
// resource: its tag, a colon, the name. {orders/17}:journal.
func Under(k fence.Key, name string) DataKey { return DataKey(Tag(k) + ":" + name) }

// MarkKey returns the Redis key of the mark: leasehold:fence:{orders/17}.
func (f *Fence) MarkKey(k fence.Key) string { return f.prefix + Tag(k) }

// parse is the reverse of MarkKey.
func (f *Fence) parse(key string) (fence.Key, bool) {
	tag, ok := strings.CutPrefix(key, f.prefix+"{")
	if !ok {
		return fence.Key{}, false
	}
	name, ok := strings.CutSuffix(tag, "}")
	if !ok {
		return fence.Key{}, false
	}
	k := fence.Key{}
	if resource, is := strings.CutPrefix(name, "resource:"); is {
		k.Resource = unescape(resource)
	} else if i := strings.LastIndexByte(name, '/'); i > 0 {
		n, err := strconv.ParseUint(name[i+1:], 10, 32)
		if err != nil {
			return fence.Key{}, false
		}
		k.Keyspace, k.Partition = unescape(name[:i]), uint32(n)
	}
	return k, f.MarkKey(k) == key
}

// escape makes a name fit for the inside of a tag. A colon is escaped so that
// no keyspace looks like a resource; braces are, because the first } ends a
// tag; control characters and spaces, so that the keys can be read and typed.
func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ', c == 0x7f, c == '%', c == '{', c == '}', c == ':':
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape undoes escape; what escape cannot have made stays as it is.
func unescape(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+2 < len(name) {
			if c, err := strconv.ParseUint(name[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// escapeBraces keeps a prefix from holding a hash tag.
func escapeBraces(prefix string) string {
	return strings.NewReplacer("{", "%7B", "}", "%7D").Replace(prefix)
}
