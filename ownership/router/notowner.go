package router

import (
	"fmt"
	"net/http"
	"strconv"
)

// NotOwner is the owners' side of a Proxy: it serves a routed request with next
// if this process holds the partition, under the token the sender knows or a
// later one, and otherwise answers 421 (Misdirected Request) with the owner,
// its endpoint and token as where knows them; where may be nil. A request
// without the headers of a Proxy is none of its business and is served.
//
// It looks once, before next begins. The lease may end while next runs: that
// is what contexts and fencing tokens are for.
func NotOwner(h Holder, where Locator, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, routed, err := parseWanted(r.Header.Get)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if !routed {
			next.ServeHTTP(w, r)
			return
		}
		hint, serve := judgeHolder(h, where, want.keyspace, want.partition, want.token)
		if serve {
			next.ServeHTTP(w, r)
			return
		}
		head := w.Header()
		head.Set(HeaderNotOwner, partitionName(want.keyspace, want.partition))
		if hint.Token != 0 {
			head.Set(HeaderOwner, hint.Owner)
			head.Set(HeaderOwnerEndpoint, hint.Endpoint)
			head.Set(HeaderOwnerToken, strconv.FormatUint(hint.Token, 10))
		}
		http.Error(w, refusal(want, hint), http.StatusMisdirectedRequest)
	})
}

// refusal is the answer in words.
func refusal(want wanted, hint Hint) string {
	if hint.Owner == "" {
		return fmt.Sprintf("not the owner of %s/%d", want.keyspace, want.partition)
	}
	return fmt.Sprintf("not the owner of %s/%d, it is %s at %s with token %d", want.keyspace, want.partition, hint.Owner, hint.Endpoint, hint.Token)
}
