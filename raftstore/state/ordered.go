package state

import (
	"cmp"
	"maps"
	"slices"
)

// sortedKeys makes a map's order a matter of its content alone.
func sortedKeys[M ~map[K]V, K cmp.Ordered, V any](m M) []K {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}

// insertBy puts v into a slice that is sorted by key.
func insertBy[T any, K cmp.Ordered](list []T, v T, key func(T) K) []T {
	i, _ := searchBy(list, key(v), key)
	return slices.Insert(list, i, v)
}

// removeBy takes the element of that key out of a slice sorted by key.
func removeBy[T any, K cmp.Ordered](list []T, k K, key func(T) K) []T {
	if i, ok := searchBy(list, k, key); ok {
		return slices.Delete(list, i, i+1)
	}
	return list
}

func searchBy[T any, K cmp.Ordered](list []T, k K, key func(T) K) (int, bool) {
	return slices.BinarySearchFunc(list, k, func(v T, k K) int { return cmp.Compare(key(v), k) })
}
