package fence

import (
	"cmp"
	"slices"
)

// Mark is what a resource remembers of one partition: the highest token it
// has accepted and whose it was. The zero Mark has seen nothing.
type Mark struct {
	Token Token
	Owner string
}

// Check is the rule of every guard. It returns nil when a resource that has
// seen the mark may accept the stamp, and must then remember the stamp's token
// and owner; otherwise a *StaleError.
//
//	got > seen                 accepted
//	got = seen, same owner     accepted: a repeated write of one lease
//	got = seen, another owner  refused, ReasonOtherOwner: a token is issued
//	                           once, so somebody made this one up
//	got < seen                 refused, ReasonStale
//
// The stamp must be valid; Check does not look at its keyspace or partition.
func Check(seen Mark, got Stamp) error {
	switch {
	case got.Token > seen.Token:
		return nil
	case got.Token < seen.Token:
		return &StaleError{Stamp: got, Current: seen.Token, CurrentOwner: seen.Owner, Reason: ReasonStale}
	case got.Owner != seen.Owner:
		return &StaleError{Stamp: got, Current: seen.Token, CurrentOwner: seen.Owner, Reason: ReasonOtherOwner}
	}
	return nil
}

// Sorted returns a copy of the stamps in the order in which a guard claims
// them: by keyspace and partition, so that two claims that meet lock in the
// same order, and the highest token of a partition first, so that a lower one
// in the same claim is refused instead of being outlived by a moment.
func Sorted(stamps []Stamp) []Stamp {
	out := slices.Clone(stamps)
	slices.SortFunc(out, func(a, b Stamp) int {
		return cmp.Or(
			a.Key().Compare(b.Key()),
			cmp.Compare(b.Token, a.Token),
			cmp.Compare(a.Owner, b.Owner),
		)
	})
	return out
}
