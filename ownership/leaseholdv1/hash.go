package leaseholdv1

// LeaseHash mixes one lease into 64 bits. A keep-alive carries the XOR over
// all leases whose contexts are live, so both ends can keep the sum up with
// each change instead of walking their tables. The mixing steps are those of
// MurmurHash3's 64-bit finalizer (Austin Appleby, public domain).
func LeaseHash(keyspaceID, partition uint32, token uint64) uint64 {
	h := fmix(uint64(keyspaceID)<<32 | uint64(partition))
	return fmix(h ^ token)
}

func fmix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return h
}
