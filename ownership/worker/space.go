package worker

import "sync/atomic"

type space struct {
	name, owner string
	partitions  uint32
	tenure      *tenure
	ready       *atomic.Int32
}
