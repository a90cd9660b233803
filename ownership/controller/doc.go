// Package controller is the loop on the leader that plans and carries out
// moves: which worker gets which partition, when an owner is asked to finish,
// and when a lease of a worker known dead is taken back.
//
// It decides nothing by itself that the state machine does not check again:
// every command it proposes is conditional on tokens, holders and the term,
// so that a plan made from an old view is refused item by item and made anew.
// All it remembers beside the replicated state is advice (how long it has been
// quiet, what moved lately, whose stream broke); a new leader starts without
// it and is merely a little more patient.
//
// The thinking is in pure functions: Plan (what should move), Step (what
// becomes of drains in progress) and Judge (is a worker known dead). The loop,
// Lead, feeds them and proposes what they say.
//
// Goroutines while leading: the loop itself, one that computes rings, at most
// 16 short-lived gossip probes, and at most 4 that wait for proposals. All of
// them have ended when Lead returns. There are none otherwise.
package controller
