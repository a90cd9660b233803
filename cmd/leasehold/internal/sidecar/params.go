package sidecar

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parameters of the API, in the query or in a JSON object in the body.
const (
	paramPartition = "partition"
	paramToken     = "token"
	paramFailed    = "failed"
	// needed after the name of a parameter.
	needed = "!"
)

// Limits of parameters.
const (
	maxToken  = 1<<53 - 1
	maxReason = 512 // bytes
)

type params struct {
	partition uint32
	token     string // "" if not given
	failed    string
}

// problem is an error as RFC 9457 has it, with what is wrong.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Field  string `json:"field"`
	Value  string `json:"value"`
	Limit  string `json:"limit"`
}

// refuse answers with a problem.
func refuse(w http.ResponseWriter, p problem) {
	p.Type, p.Title = "about:blank", http.StatusText(p.Status)
	if p.Value = strings.ToValidUTF8(p.Value, "�"); len(p.Value) > 64 {
		p.Value = strings.ToValidUTF8(p.Value[:64], "") + "…"
	}
	if p.Detail == "" {
		p.Detail = fmt.Sprintf("%s %q: want %s", p.Field, p.Value, p.Limit)
	}
	write(w, p.Status, "application/problem+json", p)
}

func answer(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

func write(w http.ResponseWriter, status int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the caller has gone: nobody to tell
}

func invalid(field, value, limit string) *problem {
	return &problem{Status: http.StatusBadRequest, Field: field, Value: value, Limit: limit}
}

// readParams reads the parameters that a request may have. partition is needed
// wherever it may be given.
func readParams(r *http.Request, partitions uint32, may ...string) (params, *problem) {
	var q params
	given, p := collect(r)
	if p != nil {
		return q, p
	}
	names := make([]string, len(may))
	for i, m := range may {
		names[i] = strings.TrimSuffix(m, needed)
	}
	for name := range given {
		if !slices.Contains(names, name) {
			limit := "no parameters"
			if len(names) > 0 {
				limit = strings.Join(names, ", ")
			}
			return q, invalid("parameter", name, limit)
		}
	}
	if slices.Contains(names, paramPartition) {
		limit := fmt.Sprintf("a number of 0…%d", partitions-1)
		n, err := strconv.ParseUint(given[paramPartition], 10, 32)
		if err != nil || n >= uint64(partitions) {
			return q, invalid(paramPartition, given[paramPartition], limit)
		}
		q.partition = uint32(n)
	}
	token, ok := given[paramToken]
	if ok || slices.Contains(may, paramToken+needed) {
		n, err := strconv.ParseUint(token, 10, 64)
		if err != nil || n == 0 || n > maxToken || strconv.FormatUint(n, 10) != token {
			return q, invalid(paramToken, token, fmt.Sprintf("the lease's token, a decimal number of 1…%d", maxToken))
		}
		q.token = token
	}
	q.failed = given[paramFailed]
	if len(q.failed) > maxReason || !utf8.ValidString(q.failed) {
		return q, invalid(paramFailed, q.failed, fmt.Sprintf("at most %d bytes of UTF-8", maxReason))
	}
	return q, nil
}

// collect gathers query and body; each name at most once.
func collect(r *http.Request) (map[string]string, *problem) {
	given := make(map[string]string)
	query := r.URL.Query()
	for name, values := range query {
		if len(values) > 1 {
			return nil, invalid(name, values[1], "one value")
		}
		given[name] = values[0]
	}
	raw, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, &problem{Status: http.StatusRequestEntityTooLarge, Field: "body", Value: "longer", Limit: fmt.Sprintf("at most %d bytes", maxBody)}
	case err != nil:
		return nil, invalid("body", err.Error(), "a readable body")
	case len(raw) == 0:
		return given, nil
	}
	var body map[string]any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&body); err != nil || dec.More() {
		return nil, invalid("body", string(raw), "one JSON object, or nothing")
	}
	for name, v := range body {
		if _, twice := given[name]; twice {
			return nil, invalid(name, fmt.Sprint(v), "one value, in the query or in the body")
		}
		switch v := v.(type) {
		case string:
			given[name] = v
		case json.Number:
			if name != paramPartition {
				return nil, invalid(name, v.String(), "a string: numbers lose digits in some languages")
			}
			given[name] = v.String()
		default:
			return nil, invalid(name, fmt.Sprint(v), "a string or a number")
		}
	}
	return given, nil
}
