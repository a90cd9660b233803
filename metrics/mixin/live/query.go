package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Sample is one value of a query's answer.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Alert is one alert that Prometheus has in mind.
type Alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	State       string            `json:"state"` // pending or firing
}

// Rule is one rule that Prometheus has loaded.
type Rule struct {
	Name   string `json:"name"`
	Type   string `json:"type"`   // alerting or recording
	Health string `json:"health"` // ok, err or unknown (not evaluated yet)
	Error  string `json:"lastError"`
}

// Query evaluates an expression now. Its answer is a vector or a scalar, which
// is one sample without labels.
func (p *Prometheus) Query(expr string) ([]Sample, error) {
	var data struct {
		Type   string          `json:"resultType"`
		Result json.RawMessage `json:"result"`
	}
	if err := p.ask("query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, fmt.Errorf("query %s: %w", expr, err)
	}
	switch data.Type {
	case "vector":
		var vector []struct {
			Metric map[string]string `json:"metric"`
			Value  point             `json:"value"`
		}
		if err := json.Unmarshal(data.Result, &vector); err != nil {
			return nil, fmt.Errorf("query %s: %w", expr, err)
		}
		samples := make([]Sample, 0, len(vector))
		for _, v := range vector {
			samples = append(samples, Sample{v.Metric, float64(v.Value)})
		}
		return samples, nil
	case "scalar":
		var v point
		err := json.Unmarshal(data.Result, &v)
		return []Sample{{nil, float64(v)}}, err
	}
	return nil, fmt.Errorf("query %s: answer is a %s", expr, data.Type)
}

// QueryRange evaluates an expression at each step of a span and returns how
// many series and points there are.
func (p *Prometheus) QueryRange(expr string, from, to time.Time, step time.Duration) (series, points int, err error) {
	q := url.Values{"query": {expr}, "start": {seconds(from)}, "end": {seconds(to)}, "step": {step.String()}}
	var data struct {
		Result []struct {
			Values []json.RawMessage `json:"values"`
		} `json:"result"`
	}
	if err := p.ask("query_range?"+q.Encode(), &data); err != nil {
		return 0, 0, fmt.Errorf("query %s: %w", expr, err)
	}
	for _, r := range data.Result {
		points += len(r.Values)
	}
	return len(data.Result), points, nil
}

// Alerts lists the alerts that are pending or firing.
func (p *Prometheus) Alerts() ([]Alert, error) {
	var data struct {
		Alerts []Alert `json:"alerts"`
	}
	err := p.ask("alerts", &data)
	return data.Alerts, err
}

// Rules lists the rules.
func (p *Prometheus) Rules() ([]Rule, error) {
	var data struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	err := p.ask("rules", &data)
	var all []Rule
	for _, g := range data.Groups {
		all = append(all, g.Rules...)
	}
	return all, err
}

// ask puts the data of an answer of the API into out.
func (p *Prometheus) ask(path string, out any) error {
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := get(p.URL+"/api/v1/"+path, &answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return fmt.Errorf("Prometheus says: %s", answer.Error)
	}
	return json.Unmarshal(answer.Data, out)
}

var quick = http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// get fetches a URL and, unless out is nil, parses its JSON, whatever the code.
func get(url string, out any) error {
	resp, err := quick.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out != nil {
		return json.NewDecoder(resp.Body).Decode(out)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, resp.Status)
	}
	return nil
}

// point is [time, "value"].
type point float64

// UnmarshalJSON implements json.Unmarshaler.
func (p *point) UnmarshalJSON(b []byte) error {
	var pair [2]any
	if err := json.Unmarshal(b, &pair); err != nil {
		return err
	}
	text, _ := pair[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	*p = point(v)
	return err
}

func seconds(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
