package raftstore

import "github.com/hashicorp/raft"

// maxAppendBytes bounds the entries of one request, unless it has a single large
// one.
const maxAppendBytes = 512 << 10

// shorten leaves what is too much for one request to the next. Raft counts
// entries, not bytes, and looks at the request to see what has been sent.
func shorten(req *raft.AppendEntriesRequest) {
	size := 0
	for i, l := range req.Entries {
		size += len(l.Data) + entryOverhead
		if size > maxAppendBytes && i > 0 {
			req.Entries = req.Entries[:i]
			return
		}
	}
}
