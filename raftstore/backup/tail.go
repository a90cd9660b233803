package backup

import (
	"crypto/sha256"
	"io"
)

// A backup that etcd's clients have saved (etcdctl snapshot save) is filled up
// with zeros to a multiple of tailBlock and followed by the SHA-256 of all of
// that: etcd's own layout, by which its tools tell a whole file.
const tailBlock = 512

// Filled is the size of a backup of size bytes that is filled up for etcd's
// clients, without the sum that follows.
func Filled(size int64) int64 { return (size + tailBlock - 1) / tailBlock * tailBlock }

// tail checks that nothing follows the trailer but what etcd's clients want
// there; io.EOF: all is well.
func (b *Reader) tail() error {
	at := b.at
	fill := int(Filled(at) - at)
	rest, err := io.ReadAll(io.LimitReader(b.r, int64(fill)+sha256.Size+1))
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return io.EOF
	}
	if len(rest) != fill+sha256.Size {
		return &DamagedError{at, "bytes follow its end"}
	}
	for _, c := range rest[:fill] {
		if c != 0 {
			return &DamagedError{at, "bytes follow its end"}
		}
	}
	b.sum.Write(rest[:fill])
	if string(b.sum.Sum(nil)) != string(rest[fill:]) {
		return &DamagedError{at, "bytes follow its end, and are not the sum that etcd's clients save with it"}
	}
	b.at += int64(len(rest))
	return io.EOF
}
