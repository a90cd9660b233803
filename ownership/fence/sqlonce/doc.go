// Package sqlonce runs a request once per idempotency key and answers its
// repeats from what the first run returned. It keeps one row per key, in the
// table leasehold_once of the database that the request writes to:
//
//	once_key        request    status  result   token  owner  created_at
//	pay-2026-03-17  \x9f86d0…  done    \x7b22…  34     w4     2026-03-17 12:00:00.000+00
//
// The row is inserted first, the work is done, and the result is stored in it,
// all in one transaction, so that nobody ever sees the status running:
//
//	result, replayed, err := once.Do(ctx, key, body, func(ctx context.Context, tx *sql.Tx) ([]byte, error) {
//		… the writes, with tx …
//		return answer, nil
//	})
//
// Promises, for as long as the row is kept:
//
//   - Of all the calls with one key, whoever makes them and whenever, the
//     writes of exactly one are committed. The others return its result.
//   - A call that fails or dies before its commit leaves neither row nor
//     writes; the next one with that key does the work.
//   - A key that comes again with another request is refused (ErrMismatch).
//   - After a connection was lost at the commit (ErrUnknown), the same call
//     again finds out: it returns the result, or does the work.
//
// It does not promise anything about effects outside this database: a mail
// that fn sends is sent again when the commit after it fails. It knows no
// order, and it does not know who owns what: a paused worker's call with a new
// key is carried out. The token and owner of the lease in the context (see
// fence.NewContext) are stored for people, and decide nothing.
// Package sqlfence does that; the two can share a transaction.
//
// # Two at once
//
// The second call with a key waits in its INSERT until the first one's
// transaction has ended, at most for the time of WithWait, and then returns
// ErrInProgress. A first one that was paused in its transaction holds its key
// until the database ends that transaction: set
// idle_in_transaction_session_timeout (PostgreSQL, MariaDB) for the role.
//
// # Isolation
//
// Do uses READ COMMITTED. DoTx works in the caller's transaction, at any level.
// At REPEATABLE READ and SERIALIZABLE the database may end a transaction that
// met another one with the same key: PostgreSQL with SQLSTATE 40001, MariaDB
// and MySQL, at READ COMMITTED too, with error 1213 (deadlock) or 1020. Begin
// again with the same key, as for any such error. Do does so by itself as long
// as fn has not run. SQLite has one level; its writers wait for one another
// when they begin, if the database was opened as sqlfence.SQLiteDSN does.
//
// # How long rows are kept
//
// For ever, unless Prune is called. A key that was pruned is a new key: its
// request will be carried out once more. So the age must be above the longest
// time after which anybody may still repeat a request, queues, dead-letter
// queues and people included.
//
// The package uses database/sql only and starts no goroutine. No clock but the
// database's is looked at, and that only by Prune.
package sqlonce
