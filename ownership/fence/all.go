package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// All returns a guard that claims at each of the resources in turn, for a
// worker that writes to several of them. A stamp is accepted when all of them
// accept it; one that any refuses is in the *ClaimError, once, and is not taken
// to the resources after that one. The first other error ends the claim with an
// unknown outcome, as always.
func All(guards ...Guard) Guard { return all(slices.Clone(guards)) }

type all []Guard

func (gs all) Claim(ctx context.Context, stamps []Stamp) error {
	if err := Validate(stamps); err != nil {
		return err
	}
	left := slices.Clone(stamps)
	var refused []*StaleError
	for i, g := range gs {
		if len(left) == 0 {
			break
		}
		err := g.Claim(ctx, left)
		var ce *ClaimError
		switch {
		case err == nil:
		case errors.As(err, &ce):
			refused = append(refused, ce.Refused...)
			left = slices.DeleteFunc(left, func(s Stamp) bool {
				return slices.ContainsFunc(ce.Refused, func(r *StaleError) bool { return r.Stamp == s })
			})
		default:
			return fmt.Errorf("claim at resource %d of %d: %w", i+1, len(gs), err)
		}
	}
	if len(refused) > 0 {
		return &ClaimError{Refused: refused}
	}
	return nil
}
