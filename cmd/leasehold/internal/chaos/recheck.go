package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/leasehold-dev/leasehold/cmd/leasehold/internal/demo"
)

// RunRecord is what a judge needs to know of a run beside ledger and evidence.
type RunRecord struct {
	Mode    demo.Mode     `json:"mode"`
	Seed    int64         `json:"seed"`
	Took    time.Duration `json:"took_ns"` // the trouble
	End     time.Duration `json:"end_ns"`  // of the evidence
	Last    int64         `json:"last"`    // order of each partition
	Guarded bool          `json:"guarded"`
	Source  demo.Source   `json:"source"`
}

func (r *runner) summary() RunRecord {
	return RunRecord{
		Mode: r.cfg.Mode, Seed: r.cfg.Seed, Took: r.ended - r.began, End: demo.Now(), Last: r.last, Guarded: !r.cfg.NoGuard, Source: r.Source,
	}
}

const runFile = "run.json"

func writeRun(dir string, r RunRecord) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, runFile), append(raw, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write summary of the run: %w", err)
	}
	return nil
}

// Recheck judges a run again from what lies in its directory.
func Recheck(ctx context.Context, dir string) (v Verdict, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, runFile))
	if err != nil {
		return v, fmt.Errorf("read summary of the run (one that broke off has none): %w", err)
	}
	var run RunRecord
	if err := json.Unmarshal(raw, &run); err != nil {
		return v, fmt.Errorf("parse summary of the run: %w", err)
	}
	ev, err := demo.ReadEvidence(filepath.Join(dir, "evidence"))
	if err != nil {
		return v, err
	}
	ledger, err := demo.OpenLedger(ctx, filepath.Join(dir, "ledger.db"), run.Guarded)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, ledger.Close()) }()
	audit, err := ledger.Audit(ctx, &run.Source, run.Last)
	if err != nil {
		return v, err
	}
	return Judge(run, audit, ev), nil
}
