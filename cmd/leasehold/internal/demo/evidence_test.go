package demo

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func TestEvidenceIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	var echo bytes.Buffer
	rec, err := NewRecorder(dir, "w1.1", "w1", &echo)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{At: 5, Kind: KindStart, Process: "w1.1", Worker: "w1", Partition: 0, Token: 1<<53 - 1},
		{At: 7, Kind: KindAck, Process: "w1.1", Worker: "w1", Sent: 6},
		{At: 9, Kind: KindDead, Process: "w2.1", Worker: "w2"},
	}
	rec.Write(Record{At: 5, Kind: KindStart, Token: 1<<53 - 1})
	rec.Write(Record{At: 7, Kind: KindAck, Sent: 6})
	rec.Write(Record{At: 9, Kind: KindDead, Process: "w2.1", Worker: "w2"})
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	ev, err := ReadEvidence(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := ev["w1.1"]; !reflect.DeepEqual(got, want) {
		t.Fatalf("read %+v, want %+v", got, want)
	}
	file, err := os.ReadFile(filepath.Join(dir, "w1.1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file, echo.Bytes()) {
		t.Fatalf("the copy for the driver differs from the file:\n%s\n%s", echo.Bytes(), file)
	}
	if _, err := NewRecorder(dir, "w1.1", "w1", nil); err == nil {
		t.Fatal("a second process may write to the evidence of the first")
	}
}

func TestRecordsWithoutTimeAreStamped(t *testing.T) {
	dir := t.TempDir()
	rec, err := NewRecorder(dir, "w1.1", "w1", nil)
	if err != nil {
		t.Fatal(err)
	}
	before := Now()
	rec.Write(Record{Kind: KindJoined})
	after := Now()
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	ev, err := ReadEvidence(dir)
	if err != nil {
		t.Fatal(err)
	}
	if at := ev["w1.1"][0].At; at < before || at > after {
		t.Fatalf("stamped %v, want between %v and %v", at, before, after)
	}
}

func TestParseRecords(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		want      int
		bad       bool
	}{
		{"nothing", "", 0, false},
		{"two lines", "{\"kind\":\"start\"}\n{\"kind\":\"end\"}\n", 2, false},
		{"torn end of a killed writer", "{\"kind\":\"start\"}\n{\"kind\":\"en", 1, false},
		{"garbage in the middle", "{\"kind\":\"start\"}\n{\"kind\n{\"kind\":\"end\"}\n", 0, true},
		{"garbage in the middle and a torn end", "{\"kind\n{\"kind\":\"en", 0, true},
		{"a whole last line that is garbage", "{\"kind\":\"start\"}\n{\"kind\n", 0, true},
		{"token that is no number", "{\"token\":\"x\"}\n", 0, true},
	} {
		got, err := parseRecords([]byte(c.raw))
		if (err != nil) != c.bad || len(got) != c.want {
			t.Errorf("%s: %d records, error %v; want %d, error %v", c.name, len(got), err, c.want, c.bad)
		}
	}
}

func TestTheStreamIsTheSameForAll(t *testing.T) {
	s := &Source{Seed: 7, Partitions: 4, Start: time.Second, Pace: 100 * time.Millisecond}
	if got, want := s.Due(0, 1), time.Second; got != want {
		t.Errorf("first order of partition 0 is due at %v, want %v", got, want)
	}
	if got, want := s.Due(2, 3), 1250*time.Millisecond; got != want {
		t.Errorf("third order of partition 2 is due at %v, want %v", got, want)
	}
	for p := range s.Partitions {
		for n := int64(1); n < 20; n++ {
			if at := s.Due(p, n); s.Arrived(at) < n {
				t.Errorf("order %d/%d is due at %v, when only %d have arrived", p, n, at, s.Arrived(at))
			}
		}
	}
	if s.Arrived(0) != 0 {
		t.Error("orders arrive before the start")
	}
	if s.Item(1, 2) == s.Item(2, 1) || s.Item(1, 2) != (&Source{Seed: 7}).Item(1, 2) || s.Item(1, 2) == (&Source{Seed: 8}).Item(1, 2) {
		t.Error("what an order says must depend on seed, partition and number alone")
	}
}
