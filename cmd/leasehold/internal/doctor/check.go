package doctor

import (
	"fmt"
	"slices"
	"strings"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
)

// State is what a monitoring plugin ends with.
type State int

// States, with their exit codes.
const (
	OK State = iota
	WarningState
	CriticalState
	Unknown
)

// String is the word that the line begins with.
func (s State) String() string { return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[s] }

// gravity orders states: what is known to be wrong is worse than not to know.
func (s State) gravity() int { return [...]int{0, 2, 3, 1}[s] }

// Result is the outcome of one check.
type Result struct {
	State State
	Text  string
	Perf  []string // figures in the plugins' format
}

// Line is the one line of output.
func (r Result) Line() string {
	line := fmt.Sprintf("%v - %s", r.State, strings.ReplaceAll(r.Text, "|", "/"))
	if len(r.Perf) > 0 {
		line += " | " + strings.Join(r.Perf, " ")
	}
	return strings.ReplaceAll(line, "\n", " ")
}

// Unit of the thresholds of a check.
type Unit int

// Units.
const (
	NoThreshold Unit = iota
	Count
	Percent
	Duration // thresholds are in seconds
)

// Thresholds of a check, and the keyspace that it is about.
type Thresholds struct {
	Warning, Critical float64
	Keyspace          string
}

// Check is one thing to watch.
type Check struct {
	Name, Short string
	Unit        Unit
	// Below says that less is worse: the state is bad below the thresholds, else
	// it is bad above them.
	Below    bool
	Defaults Thresholds
	// Lists says that keyspaces and workers are looked at; Twice that it takes
	// two looks.
	Lists, Twice bool
	Run          func(*Facts, Thresholds) Result
}

// Checks are all there are.
func Checks() []Check {
	return []Check{
		{Name: "quorum", Short: "there is a leader, and how many voters more may fail", Unit: Count, Below: true, Defaults: Thresholds{Warning: 1}, Run: checkQuorum},
		{Name: "unowned", Short: "partitions without an owner", Unit: Count, Defaults: Thresholds{Warning: 0, Critical: 0.5}, Lists: true, Run: checkUnowned},
		{Name: "lease", Short: "workers renew their sessions: what is left of the TTL", Unit: Percent, Below: true, Defaults: Thresholds{Warning: 50, Critical: 25}, Lists: true, Run: checkLease},
		{Name: "disk", Short: "free space of the data directories", Unit: Percent, Below: true, Defaults: Thresholds{Warning: 10, Critical: 3}, Run: checkDisk},
		{Name: "fsync", Short: "how long the disks take to sync, 99th percentile", Unit: Duration, Defaults: Thresholds{Warning: 0.1, Critical: 0.5}, Run: checkFsync},
		{Name: "backup", Short: "age of the last backup", Unit: Duration, Defaults: Thresholds{Warning: backupEvery.Seconds(), Critical: 2 * backupEvery.Seconds()}, Run: checkBackup},
		{Name: "clock", Short: "difference between the clock rates of servers", Unit: Percent, Defaults: Thresholds{Warning: 0.5, Critical: 1}, Twice: true, Run: checkClock},
		{Name: "gossip", Short: "servers see each other in gossip", Run: checkGossip},
		{Name: "version", Short: "all servers run one version and know the feature level", Run: checkVersion},
	}
}

// All runs every check with its defaults; the outcome is the worst of them.
func All(f *Facts, keyspace string) Result {
	worst := Result{}
	var names, texts, perf []string
	for _, c := range Checks() {
		t := c.Defaults
		t.Keyspace = keyspace
		r := c.Run(f, t)
		names, perf = append(names, c.Name), append(perf, r.Perf...)
		if r.State != OK {
			texts = append(texts, c.Name+": "+r.Text)
		}
		if r.State.gravity() > worst.State.gravity() {
			worst.State = r.State
		}
	}
	worst.Text, worst.Perf = strings.Join(texts, "; "), perf
	if len(texts) == 0 {
		worst.Text = fmt.Sprintf("%d checks: %s", len(names), strings.Join(names, ", "))
	}
	return worst
}

// judge compares a value with thresholds.
func judge(v float64, t Thresholds, below bool) State {
	bad := func(limit float64) bool { return below && v < limit || !below && v > limit }
	switch {
	case bad(t.Critical):
		return CriticalState
	case bad(t.Warning):
		return WarningState
	}
	return OK
}

// perf is one figure in the plugins' format; a range that is bad below its
// limit is written as "10:".
func perf(label string, v float64, unit string, t Thresholds, below bool) string {
	colon := ""
	if below {
		colon = ":"
	}
	return fmt.Sprintf("'%s'=%s%s;%s%s;%s%s", strings.ReplaceAll(label, "'", ""), trim(v), unit, trim(t.Warning), colon, trim(t.Critical), colon)
}

// trim writes a number without needless digits.
func trim(v float64) string {
	s := fmt.Sprintf("%.3f", v)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// silent is the outcome when nobody answers.
func silent(f *Facts) (Result, bool) {
	if f.Answered() {
		return Result{}, false
	}
	return Result{State: Unknown, Text: "no server answers"}, true
}

func checkQuorum(f *Facts, t Thresholds) Result {
	if r, none := silent(f); none {
		r.State = CriticalState
		return r
	}
	need, voters, alive := f.quorum()
	spare := float64(alive - need)
	r := Result{State: judge(spare, t, true), Text: fmt.Sprintf("%d of %d voters up, %d needed", alive, voters, need),
		Perf: []string{perf("spare_voters", spare, "", t, true)}}
	l := f.leader()
	switch {
	case l != nil:
		r.Text = "leader " + l.name() + ", " + r.Text
	case slices.ContainsFunc(f.up(), func(s *Server) bool { return s.Second.Status.GetLeaderId() != "" }):
		r.Text, r.State = "the leader gives no answer here, "+r.Text, max(r.State, WarningState)
	default:
		r.Text, r.State = "no leader, "+r.Text, CriticalState
	}
	return r
}

// lists is the outcome when what a check looks at could not be asked for.
func lists(f *Facts, t Thresholds) (Result, bool) {
	if r, none := silent(f); none {
		return r, true
	}
	if f.ListsError != nil {
		return Result{State: Unknown, Text: errText(f.ListsError)}, true
	}
	if t.Keyspace != "" && f.keyspace(t.Keyspace) == nil {
		return Result{State: Unknown, Text: fmt.Sprintf("there is no keyspace %q", t.Keyspace)}, true
	}
	return Result{}, false
}

// checkUnowned is critical, by default, when half of a keyspace has no owner:
// a critical threshold below 1 is a share of each keyspace.
func checkUnowned(f *Facts, t Thresholds) Result {
	if r, none := lists(f, t); none {
		return r
	}
	r := Result{}
	total := int64(0)
	var parts []string
	for _, k := range f.Keyspaces {
		if t.Keyspace != "" && k.GetName() != t.Keyspace {
			continue
		}
		n, limit := k.GetStatus().GetUnowned(), t
		if limit.Critical < 1 {
			limit.Critical = max(limit.Critical*float64(k.GetPartitions()), limit.Warning)
		}
		total += n
		if s := judge(float64(n), limit, false); s != OK {
			r.State = max(r.State, s)
			parts = append(parts, fmt.Sprintf("%d of %d of %s%s", n, k.GetPartitions(), k.GetName(), f.whyUnowned(k.GetName())))
		}
		r.Perf = append(r.Perf, perf("unowned_"+k.GetName(), float64(n), "", limit, false))
	}
	r.Text = fmt.Sprintf("%d partitions without an owner", total)
	if len(parts) > 0 {
		r.Text = "without an owner: " + some(parts)
	}
	return r
}

// whyUnowned is the reason of the first that has one.
func (f *Facts) whyUnowned(keyspace string) string {
	for _, p := range f.Unowned {
		if p.GetKeyspace() == keyspace && p.GetReason() != "" {
			return " (" + p.GetReason() + ")"
		}
	}
	return ""
}

func checkLease(f *Facts, t Thresholds) Result {
	if r, none := lists(f, t); none {
		return r
	}
	r := Result{}
	live, least := 0, 100.0
	var late []string
	for _, w := range f.Workers {
		if w.GetState() != "live" || t.Keyspace != "" && !slices.Contains(w.GetKeyspaces(), t.Keyspace) {
			continue
		}
		live++
		left := 100 * LeaseLeft(w)
		least = min(least, left)
		if s := judge(left, t, true); s != OK {
			r.State = max(r.State, s)
			late = append(late, fmt.Sprintf("%s (%.0f %% of %v left)", w.GetId(), left, ms(w.GetTtlMs())))
		}
	}
	r.Text = fmt.Sprintf("%d workers renew in time", live)
	if len(late) > 0 {
		r.Text = "renewals late: " + some(late)
	}
	r.Perf = []string{perf("least_left", least, "%", t, true), fmt.Sprintf("'workers'=%d", live)}
	return r
}

// each runs a look at every server that answers with a health, and puts the
// worst together. A server whose figures are not known is left out; when none
// is known the outcome is unknown.
func each(f *Facts, t Thresholds, below bool, figure func(*Server) (label, unit string, v float64, text string, known bool)) Result {
	if r, none := silent(f); none {
		return r
	}
	r := Result{}
	var good, bad []string
	for _, s := range f.up() {
		label, unit, v, text, known := figure(s)
		if !known {
			continue
		}
		text = s.name() + " " + text
		if state := judge(v, t, below); state == OK {
			good = append(good, text)
		} else {
			r.State = max(r.State, state)
			bad = append(bad, text)
		}
		r.Perf = append(r.Perf, perf(label+"_"+s.name(), v, unit, t, below))
	}
	switch {
	case len(bad) > 0:
		r.Text = some(bad)
	case len(good) > 0:
		r.Text = some(good)
	default:
		return Result{State: Unknown, Text: "no server knows"}
	}
	return r
}

func checkDisk(f *Facts, t Thresholds) Result {
	for _, s := range f.up() {
		if s.health().GetStoragePoisoned() {
			return Result{State: CriticalState, Text: s.name() + ": a write or sync of the log has failed"}
		}
	}
	r := each(f, t, true, func(s *Server) (string, string, float64, string, bool) {
		h := s.health()
		free := 100 * float64(h.GetDiskFreeBytes()) / float64(max(h.GetDiskSizeBytes(), 1))
		return "free", "%", free, fmt.Sprintf("%s free (%.1f %%)", size(h.GetDiskFreeBytes()), free), h.GetDiskSizeBytes() > 0
	})
	if r.State == Unknown && f.Answered() && f.up()[0].health() != nil && f.up()[0].health().GetDataDir() == "" {
		return Result{Text: "all state is in memory"}
	}
	return r
}

func checkFsync(f *Facts, t Thresholds) Result {
	r := each(f, t, false, func(s *Server) (string, string, float64, string, bool) {
		h := s.health()
		return "fsync_p99", "s", h.GetFsyncP99Ms() / 1000, fmt.Sprintf("p99 %.1f ms", h.GetFsyncP99Ms()), h.GetFsyncCount() > 0
	})
	if r.State == Unknown && f.Answered() {
		return Result{Text: "nothing was synced lately"}
	}
	return r
}

func checkBackup(f *Facts, t Thresholds) Result {
	if r, none := silent(f); none {
		return r
	}
	age, seen, known := LastBackup(f)
	if !seen {
		return Result{State: judge(known.Seconds(), t, false), Text: fmt.Sprintf("no backup in the %v that servers run", ms(known.Milliseconds()))}
	}
	return Result{State: judge(age.Seconds(), t, false), Text: fmt.Sprintf("last backup %v ago", ms(age.Milliseconds())),
		Perf: []string{perf("backup_age", age.Seconds(), "s", t, false)}}
}

func checkClock(f *Facts, t Thresholds) Result {
	if r, none := silent(f); none {
		return r
	}
	c := ClockRates(f)
	if c.Fast == "" {
		if len(f.up()) == 1 {
			return Result{Text: "a single server answers: nothing to compare"}
		}
		return Result{State: Unknown, Text: "the clocks could not be compared"}
	}
	return Result{State: judge(100*c.Least, t, false), Text: fmt.Sprintf("%s runs %s faster than %s, give or take %s", c.Fast, percent(c.Likely), c.Slow, percent(c.Error)),
		Perf: []string{perf("rate_difference", 100*c.Likely, "%", t, false)}}
}

// ofFindings turns findings of some codes into an outcome.
func ofFindings(f *Facts, well string, codes ...string) Result {
	if r, none := silent(f); none {
		return r
	}
	r := Result{Text: well}
	var texts []string
	for _, x := range Examine(f) {
		if !slices.Contains(codes, x.GetCode()) {
			continue
		}
		switch x.GetSeverity() {
		case Critical:
			r.State = CriticalState
		case Warning:
			r.State = max(r.State, WarningState)
		}
		texts = append(texts, findingText(x))
	}
	if len(texts) > 0 {
		r.Text = strings.Join(texts, "; ")
	}
	return r
}

func findingText(x *pb.Finding) string {
	if x.GetEvidence() == "" {
		return x.GetWhat()
	}
	return x.GetWhat() + " (" + x.GetEvidence() + ")"
}

func checkGossip(f *Facts, _ Thresholds) Result {
	return ofFindings(f, plural(len(f.up()), "server")+" see one another", "gossip_blocked", "udp_blocked", "gossip_conflict")
}

func checkVersion(f *Facts, _ Thresholds) Result {
	well := ""
	if up := f.up(); len(up) > 0 {
		well = fmt.Sprintf("%s with version %s, feature level %d", plural(len(up), "server"), up[0].Second.Status.GetVersion(), up[0].Second.Status.GetFeatureLevel())
	}
	return ofFindings(f, well, "version_mix", "server_too_old", "feature_level")
}
