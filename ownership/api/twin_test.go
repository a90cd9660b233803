package api

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	pb "github.com/leasehold-dev/leasehold/ownership/leaseholdv1"
	"github.com/leasehold-dev/leasehold/ownership/leaseholdv1/leaseholdv1connect"
	"github.com/leasehold-dev/leasehold/ring/keyrange"
)

func post(t *testing.T, s *server, method, body string) (int, http.Header, map[string]any) {
	t.Helper()
	srv := httptest.NewServer(s.guard.HTTP(s.api.HTTPHandler(s.guard)))
	defer srv.Close()
	resp, err := srv.Client().Post(srv.URL+method, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%s answered %d %q", method, resp.StatusCode, data)
	}
	return resp.StatusCode, resp.Header, m
}

func TestTheSameCallsAsJSON(t *testing.T) {
	c := startCluster(t, 3)
	s := c.follower(t) // forwarded in the same way
	code, _, m := post(t, s, pb.KeyspaceService_CreateKeyspace_FullMethodName, `{"name":"orders","partitions":8,"ttl_ms":"10000"}`)
	if code != http.StatusOK || m["name"] != "orders" || m["ttl_ms"] != "10000" {
		t.Fatalf("%d %v", code, m)
	}
	code, _, m = post(t, s, pb.PartitionService_Locate_FullMethodName, `{"keyspace":"orders","key":"`+"YQ=="+`"}`)
	if code != http.StatusOK || m["range_first"] == nil {
		t.Errorf("%d %v", code, m)
	}
	code, header, m := post(t, s, pb.ClusterService_GetStatus_FullMethodName, `{}`)
	if code != http.StatusOK || m["server_id"] != s.id || header.Get(ageKey) == "" {
		t.Errorf("%d %v, header %v", code, m, header)
	}
}

func TestErrorsAsJSONHaveTheirDetails(t *testing.T) {
	c := startCluster(t, 1)
	s := c.leader(t)
	detail := func(m map[string]any) map[string]any {
		ds, _ := m["details"].([]any)
		if len(ds) == 0 {
			return nil
		}
		debug, _ := ds[0].(map[string]any)["debug"].(map[string]any)
		return debug
	}
	code, _, m := post(t, s, pb.KeyspaceService_CreateKeyspace_FullMethodName, `{"name":"a/b","partitions":8,"ttl_ms":10000}`)
	if code != http.StatusBadRequest || m["code"] != "invalid_argument" || detail(m)["field"] != "name" || detail(m)["reason"] != "invalid" {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = post(t, s, pb.KeyspaceService_GetKeyspace_FullMethodName, `{"name":"nothing"}`)
	if code != http.StatusNotFound || detail(m)["value"] != "nothing" {
		t.Errorf("%d %v", code, m)
	}
	code, _, m = post(t, s, pb.KeyspaceService_GetKeyspace_FullMethodName, `{"name":"orders","partitons":3}`)
	if code != http.StatusBadRequest || !strings.Contains(m["message"].(string), "partitons") {
		t.Errorf("a misspelt field: %d %v", code, m)
	}
	code, _, m = post(t, s, pb.KeyspaceService_GetKeyspace_FullMethodName, `{"name":"`+strings.Repeat("n", 2<<20)+`"}`)
	if code != http.StatusTooManyRequests || detail(m)["reason"] != "too_large" {
		t.Errorf("a large one: %d %.200v", code, m)
	}
	code, _, m = post(t, s, pb.SessionService_Attach_FullMethodName, `{}`)
	if code != http.StatusNotImplemented || !strings.Contains(m["message"].(string), "Attach") {
		t.Errorf("attach: %d %v", code, m)
	}
}

func TestWatchOverHTTP(t *testing.T) {
	c := startCluster(t, 1)
	s := c.leader(t)
	srv := httptest.NewServer(s.guard.HTTP(s.api.HTTPHandler(s.guard)))
	defer srv.Close()
	client := leaseholdv1connect.NewEventServiceClient(srv.Client(), srv.URL)
	stream, err := client.WatchEvents(t.Context(), &pb.WatchEventsRequest{AfterRevision: 1})
	if err != nil {
		t.Fatal(err)
	}
	createKeyspace(t, s.dial(t), "orders", 1)
	for stream.Receive() {
		for _, ev := range stream.Msg().GetItems() {
			if ev.GetKind() == "keyspace_create" && ev.GetKeyspace() == "orders" {
				_ = stream.Close()
				return
			}
		}
	}
	t.Fatal(stream.Err())
}

func TestEveryMethodHasItsTwin(t *testing.T) {
	c := startCluster(t, 1)
	s := c.leader(t)
	srv := httptest.NewServer(s.guard.HTTP(s.api.HTTPHandler(s.guard)))
	defer srv.Close()
	for name, m := range s.api.methods {
		resp, err := srv.Client().Post(srv.URL+name, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		line, _ := bufio.NewReader(resp.Body).ReadString('\n')
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusNotFound && !strings.Contains(line, "not_found") {
			t.Errorf("%s (%s) answers %d %s", name, m.in.Descriptor().Name(), resp.StatusCode, line)
		}
	}
}

// O-70: every way to ask gives the same partition.
func TestNastyKeysGiveTheSamePartitionEverywhere(t *testing.T) {
	c := startCluster(t, 1)
	s := c.leader(t)
	conn := s.dial(t)
	createKeyspace(t, conn, "orders", 997)
	for _, key := range []string{"", "\x00", "a\x00b", "\xff", "\u00e9", "e\u0301", "a ", "a/../b", "😀", strings.Repeat("k", 1<<20)} {
		want := keyrange.Partition([]byte(key), 997)
		got, err := pb.NewPartitionServiceClient(conn).Locate(t.Context(), &pb.LocateRequest{Keyspace: "orders", Key: []byte(key)})
		if err != nil || got.GetPartition() != want {
			t.Errorf("%.20q by gRPC: %v, %v; want %d", key, got.GetPartition(), err, want)
		}
		body, err := protojson.Marshal(&pb.LocateRequest{Keyspace: "orders", Key: []byte(key)})
		if err != nil {
			t.Fatal(err)
		}
		code, _, m := post(t, s, pb.PartitionService_Locate_FullMethodName, string(body))
		if n, _ := m["partition"].(float64); code != http.StatusOK || uint32(n) != want {
			t.Errorf("%.20q as JSON: %d %v; want %d", key, code, m["partition"], want)
		}
	}
}
