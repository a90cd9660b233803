// Package relaypb has the generated messages of relay.proto: how a follower
// hands the calls that only the leader can answer to it, many in one message.
// Servers alone speak it, and both sides may change it with a feature level.
package relaypb
