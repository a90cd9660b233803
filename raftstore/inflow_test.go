package raftstore

import (
	"bufio"
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
)

// request is a request as Raft's transport sends it.
func request(t testing.TB, kind byte, req any) []byte {
	t.Helper()
	b := bytes.NewBuffer([]byte{kind})
	if err := codec.NewEncoder(b, &codec.MsgpackHandle{}).Encode(req); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	kindAppend = iota
	kindVote
	kindSnapshot
	kindTimeout
	kindPreVote
)

var header = raft.RPCHeader{ProtocolVersion: 3, ID: []byte("s1#aa"), Addr: []byte("Size")}

func requests(t testing.TB) map[string][]byte {
	entries := make([]*raft.Log, maxAppendEntries)
	for i := range entries {
		entries[i] = &raft.Log{Index: uint64(i) + 1<<40, Term: 300, Data: bytes.Repeat([]byte{0xdf}, 5*i), AppendedAt: time.Now()}
	}
	return map[string][]byte{
		"heartbeat":  request(t, kindAppend, &raft.AppendEntriesRequest{RPCHeader: header, Term: 1}),
		"append":     request(t, kindAppend, &raft.AppendEntriesRequest{RPCHeader: header, Term: 1, Entries: entries, LeaderCommitIndex: 1 << 50}),
		"vote":       request(t, kindVote, &raft.RequestVoteRequest{RPCHeader: header, Term: 1, LeadershipTransfer: true}),
		"pre-vote":   request(t, kindPreVote, &raft.RequestPreVoteRequest{RPCHeader: header, Term: 1, LastLogIndex: 9}),
		"transfer":   request(t, kindTimeout, &raft.TimeoutNowRequest{RPCHeader: header}),
		"snapshot":   append(request(t, kindSnapshot, &raft.InstallSnapshotRequest{RPCHeader: header, Size: 300, Configuration: []byte("Size")}), make([]byte, 300)...),
		"empty":      request(t, kindSnapshot, &raft.InstallSnapshotRequest{RPCHeader: header}),
		"large":      request(t, kindAppend, &raft.AppendEntriesRequest{RPCHeader: header, Entries: []*raft.Log{{Data: make([]byte, 8<<20)}}}),
		"big number": append(request(t, kindSnapshot, &raft.InstallSnapshotRequest{RPCHeader: header, Size: 70_000, Leader: nil}), make([]byte, 70_000)...),
	}
}

// What servers send passes, in whatever pieces it arrives, and nothing after it
// before it is answered.
func TestRequestsOfServersPass(t *testing.T) {
	for name, req := range requests(t) {
		for _, piece := range []int{1, 7, 4096, len(req)} {
			var f inflow
			for round := range 2 { // one request after the other
				at := 0
				for part := range slices.Chunk(req, piece) {
					if err := f.scan(part); err != nil {
						t.Fatalf("%s in pieces of %d, round %d, at %d of %d: %v", name, piece, round, at, len(req), err)
					}
					if at += len(part); at < len(req) && f.stage == inflowAnswer {
						t.Fatalf("%s ends at %d of %d", name, at, len(req))
					}
				}
				if f.stage != inflowAnswer {
					t.Fatalf("%s in pieces of %d does not end", name, piece)
				}
				more := f
				if err := more.scan([]byte{0}); !errors.Is(err, errFrame) {
					t.Errorf("%s: more before the answer: %v", name, err)
				}
				f.answered()
			}
		}
	}
}

// What is too large is refused by its announcement.
func TestLargeRequestsAreRefused(t *testing.T) {
	open := append([]byte{kindAppend, 0x81, 0xa7}, "Entries"...)
	entry := append(slices.Clone(open), 0x91, 0x81, 0xa4, 'D', 'a', 't', 'a')
	deep := append(slices.Clone(open), bytes.Repeat([]byte{0x91}, 9)...)
	many := append(slices.Clone(open), 0xdd, 0, 1, 0xff, 0xff)
	many = append(many, bytes.Repeat([]byte{0x80}, maxFrameValues)...)
	for name, req := range map[string][]byte{
		"a long text":       append(slices.Clone(entry), 0xc6, 0x04, 0, 0, 1),
		"the longest text":  append(slices.Clone(entry), 0xdb, 0xff, 0xff, 0xff, 0xff),
		"a long array":      append(slices.Clone(open), 0xdd, 0xff, 0xff, 0xff, 0xff),
		"a long map":        append(slices.Clone(open), 0xdf, 0xff, 0xff, 0xff, 0xff),
		"many entries":      many,
		"deep":              deep,
		"an array":          {kindSnapshot, 0x9a},
		"nothing":           {kindVote, 0xc0},
		"a kind":            {5},
		"no byte":           {kindVote, 0x81, 0xa1, 'x', 0xc1},
		"a size that is no": append([]byte{kindSnapshot, 0x81, 0xa4}, "Size\xa1x"...),
		"two sizes":         append([]byte{kindSnapshot, 0x82, 0xa4}, "Size\x00\xa4Size\x01"...),
		"a huge size":       append([]byte{kindSnapshot, 0x81, 0xa4}, "Size\xcf\xff\xff\xff\xff\xff\xff\xff\xff"...),
	} {
		var f inflow
		if err := f.scan(req); !errors.Is(err, errFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The bound is that of a whole request, not of one text.
	var f inflow
	texts := append(slices.Clone(open), 0xdc, 0xff, 0xff)
	if err := f.scan(texts); err != nil {
		t.Fatal(err)
	}
	mib := make([]byte, 1<<20)
	for i := 0; ; i++ {
		err := f.scan(append([]byte{0xc6, 0, 0x10, 0, 0}, mib...))
		if errors.Is(err, errFrame) && i >= 62 && i <= 64 {
			break
		}
		if err != nil || i > 64 {
			t.Fatalf("after %d MiB: %v", i, err)
		}
	}
}

// FuzzInflow wants Raft's decoder to take no byte more for a request than inflow
// says that it has.
func FuzzInflow(f *testing.F) {
	for name, req := range requests(f) {
		if name != "large" && name != "big number" {
			f.Add(req)
		}
	}
	f.Add(append([]byte{kindSnapshot, 0x82, 0xc4, 4}, "Size\x05\xa1x\x91\xa4Size12345"...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		var whole inflow
		ends := -1
		for i := range data { // byte by byte: where does it end?
			if err := whole.scan(data[i : i+1]); err != nil {
				break
			}
			if whole.stage == inflowAnswer {
				ends = i + 1
				break
			}
		}
		var once inflow
		if err := once.scan(data); ends == len(data) && (err != nil || once.stage != inflowAnswer) {
			t.Fatalf("in one piece: %v", err)
		}
		if ends < 0 {
			return // Raft does not get to see it, and would take 4 GiB for what some announce
		}
		if n, ok := decoded(data); ok && ends >= 0 && n > ends {
			t.Fatalf("Raft takes %d bytes, %d are accounted for", n, ends)
		}
	})
}

// decoded is how much of data Raft's transport takes for one request.
func decoded(data []byte) (n int, ok bool) {
	in := bytes.NewReader(data[1:])
	r := bufio.NewReader(in)
	var req any
	switch data[0] {
	case kindAppend:
		req = new(raft.AppendEntriesRequest)
	case kindVote:
		req = new(raft.RequestVoteRequest)
	case kindSnapshot:
		req = new(raft.InstallSnapshotRequest)
	case kindTimeout:
		req = new(raft.TimeoutNowRequest)
	case kindPreVote:
		req = new(raft.RequestPreVoteRequest)
	default:
		return 0, false
	}
	if err := codec.NewDecoder(r, &codec.MsgpackHandle{}).Decode(req); err != nil {
		return 0, false
	}
	n = len(data) - in.Len() - r.Buffered()
	if s, ok := req.(*raft.InstallSnapshotRequest); ok {
		n += int(min(max(s.Size, 0), 1<<40))
	}
	return n, true
}
