package main

import (
	"context"
	"database/sql"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// change is the event of the demonstration: the account has a new version.
type change struct {
	Key     string `json:"key"`
	Version int64  `json:"version"`
}

// touch changes an account and publishes the event, in one transaction.
func touch(ctx context.Context, db *sql.DB, partitions uint32, key string) error {
	return transaction(ctx, db, func(ctx context.Context, tx *sql.Tx) error {
		c := change{Key: key}
		err := tx.QueryRowContext(ctx, `
			INSERT INTO account (key, version) VALUES ($1, 1)
			ON CONFLICT (key) DO UPDATE SET version = account.version + 1
			RETURNING version`, key).Scan(&c.Version)
		if err != nil {
			return fmt.Errorf("change account %q: %w", key, err)
		}
		return publish(ctx, tx, partitions, key, c)
	})
}

// produce makes events, spread over the keys, from several connections at once.
func produce(ctx context.Context, db *sql.DB, events, keys, producers int) error {
	p, err := partitions(ctx, db)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for i := range producers {
		g.Go(func() error {
			for n := i; n < events; n += producers {
				if err := touch(ctx, db, p, fmt.Sprintf("account-%d", n%keys)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}
