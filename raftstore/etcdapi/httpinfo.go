package etcdapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/leasehold-dev/leasehold/raftstore/state"
)

// serveVersion answers GET /version with the release of etcd whose API this is.
func (a *API) serveVersion(w http.ResponseWriter, r *http.Request) {
	if !onlyGet(w, r) {
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Server  string `json:"etcdserver"`
		Cluster string `json:"etcdcluster"`
		Storage string `json:"storage"`
	}{etcdVersion, etcdVersion, etcdVersion})
}

// health is etcd's answer to GET /health.
type health struct {
	Health string `json:"health"` // "true" or "false"
	Reason string `json:"reason"`
}

// serveHealth answers GET /health: 503 when an alarm is raised (but for those that
// the parameter exclude names), when there is no leader or when it does not answer.
// With serializable=true this server alone is looked at.
func (a *API) serveHealth(w http.ResponseWriter, r *http.Request) {
	if !onlyGet(w, r) {
		return
	}
	query := r.URL.Query()
	excluded := map[string]bool{}
	for _, name := range query["exclude"] {
		excluded[name] = true
	}
	reason := a.unhealthy(r.Context(), excluded, query.Get("serializable") == "true")
	if reason != "" {
		writeJSON(w, http.StatusServiceUnavailable, health{"false", reason})
		return
	}
	writeJSON(w, http.StatusOK, health{"true", ""})
}

// unhealthy is why this server, or with it the cluster, is not well; "" if it is.
func (a *API) unhealthy(ctx context.Context, excluded map[string]bool, serializable bool) string {
	var alarms []uint64
	a.cfg.Store.View(func(s *state.State) { alarms = s.Alarms() })
	if len(alarms) > 0 && !excluded["NOSPACE"] {
		return "ALARM NOSPACE"
	}
	if serializable {
		return ""
	}
	if id, ok := a.cfg.Store.LeaderID(); !ok || id == "" {
		return "RAFT NO LEADER"
	}
	ctx, cancel := a.callContext(ctx)
	defer cancel()
	if err := a.read(ctx, func(*state.State) {}); err != nil {
		return "RANGE ERROR:" + toStatus(err).Error()
	}
	return ""
}

func onlyGet(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet {
		return true
	}
	w.Header().Set("Allow", http.MethodGet)
	http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	return false
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	body, err := json.Marshal(v)
	if err != nil {
		return // the types above always encode
	}
	_, _ = w.Write(body) // a reader that has gone needs no answer
}
