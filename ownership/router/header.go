package router

import (
	"fmt"
	"net/http"
	"strconv"
)

// Headers of a routed request; gRPC has them as metadata, in lower case. A
// Proxy sets them, whatever its own caller sent. They are about the way and no
// proof of anything: the stamp that a resource checks is the owner's own.
const (
	HeaderKeyspace  = "Leasehold-Route-Keyspace"
	HeaderPartition = "Leasehold-Route-Partition"
	// HeaderToken is the token that the sender believes the owner to have.
	HeaderToken = "Leasehold-Route-Token"
	// HeaderHop marks what has been forwarded: a Proxy does not forward it
	// again.
	HeaderHop = "Leasehold-Route-Hop"
)

// Headers of the answer "not the owner, it is …". HeaderNotOwner is always
// there; the others if the one that answers knows.
const (
	HeaderNotOwner      = "Leasehold-Not-Owner" // the partition, keyspace/number
	HeaderOwner         = "Leasehold-Owner"
	HeaderOwnerEndpoint = "Leasehold-Owner-Endpoint"
	HeaderOwnerToken    = "Leasehold-Owner-Token"
)

// wanted is what a routed request says about its way.
type wanted struct {
	keyspace  string
	partition uint32
	token     uint64
}

// parseWanted reads the way from whatever has the headers. Without a partition
// the request was not routed.
func parseWanted(get func(string) string) (w wanted, routed bool, err error) {
	w.keyspace = get(HeaderKeyspace)
	partition := get(HeaderPartition)
	if w.keyspace == "" && partition == "" {
		return w, false, nil
	}
	p, err := strconv.ParseUint(partition, 10, 32)
	if err != nil || w.keyspace == "" || len(w.keyspace) > maxNameLen {
		return w, true, fmt.Errorf("%s %.40q, %s %.40q: want a keyspace's name and the number of a partition", HeaderKeyspace, w.keyspace, HeaderPartition, partition)
	}
	w.partition = uint32(p)
	if token := get(HeaderToken); token != "" {
		if w.token, err = strconv.ParseUint(token, 10, 64); err != nil || w.token > maxToken {
			return w, true, fmt.Errorf("%s %.40q: want 0 to %d", HeaderToken, token, uint64(maxToken))
		}
	}
	return w, true, nil
}

// stamp writes the way that a route goes.
func stamp(set func(key, value string), at Route) {
	set(HeaderKeyspace, at.Keyspace)
	set(HeaderPartition, strconv.FormatUint(uint64(at.Partition), 10))
	set(HeaderToken, strconv.FormatUint(at.Token, 10))
	set(HeaderHop, "1")
}

// hintOf reads the hint of an answer.
func hintOf(h http.Header) Hint {
	token, err := strconv.ParseUint(h.Get(HeaderOwnerToken), 10, 64)
	if err != nil {
		return Hint{}
	}
	return Hint{Owner: h.Get(HeaderOwner), Endpoint: h.Get(HeaderOwnerEndpoint), Token: token}
}
