package sidecar

import (
	"fmt"
	"slices"
	"testing"
)

func TestFeedResumesWhileItRemembers(t *testing.T) {
	f := newFeed()
	for i := range maxEvents + 10 {
		f.publish("granted", i+1)
	}
	last, _ := f.head()
	if last != maxEvents+10 {
		t.Fatalf("head %d", last)
	}
	got, ok := f.since(last - 2)
	if !ok || len(got) != 2 || got[0].id != last-1 || string(got[1].data) != fmt.Sprint(last) {
		t.Errorf("since %d: %+v", last-2, got)
	}
	if got, ok := f.since(last); !ok || len(got) != 0 {
		t.Errorf("since the head: %+v, %v", got, ok)
	}
	if got, ok := f.since(last - maxEvents); !ok || len(got) != maxEvents || got[0].id != 11 {
		t.Errorf("since all that is kept: %d, %v", len(got), ok)
	}
	for _, id := range []uint64{last - maxEvents - 1, 0, last + 1, 1<<64 - 1} {
		if _, ok := f.since(id); ok {
			t.Errorf("resumes after %d, which it does not know", id)
		}
	}
	if id, ok := f.parse(f.format(17)); !ok || id != 17 {
		t.Errorf("id %d, %v", id, ok)
	}
	if _, ok := newFeed().parse(f.format(17)); ok {
		t.Error("an id of another sidecar is taken")
	}
}

func TestFeedTellsOfNews(t *testing.T) {
	f := newFeed()
	_, changed := f.head()
	f.publish("ended", 1)
	<-changed
}

func TestDescendantsAreFoundInAnyOrder(t *testing.T) {
	table := []process{{pid: 5, parent: 4}, {pid: 9, parent: 1}, {pid: 4, parent: 3, zombie: true}, {pid: 3, parent: 2}, {pid: 2, parent: 1}, {pid: 6, parent: 5}}
	got := descendants(table, 2)
	slices.Sort(got)
	if !slices.Equal(got, []int{3, 5, 6}) {
		t.Errorf("below 2: %v, want 3, 5 and 6: 4 has ended, 9 is elsewhere", got)
	}
}

// A sidecar within a sidecar: what the outer one said is not the inner one's.
func TestEnvironmentOfAnotherSidecarIsNotPassedOn(t *testing.T) {
	base := []string{"PATH=/bin", "LEASEHOLD_TOKEN=7", "LEASEHOLD_TOKENS=x", "LEASEHOLD_SOCKET=/tmp/s", "LEASEHOLD_SERVER=a:1"}
	got := withEnv(without(base, own), "LEASEHOLD_TOKEN=8")
	if want := []string{"PATH=/bin", "LEASEHOLD_TOKENS=x", "LEASEHOLD_SERVER=a:1", "LEASEHOLD_TOKEN=8"}; !slices.Equal(got, want) {
		t.Errorf("environment %v, want %v", got, want)
	}
	if got := withEnv([]string{"A=1", "B=2"}, "A=3"); !slices.Equal(got, []string{"B=2", "A=3"}) {
		t.Errorf("environment %v: a variable is there twice", got)
	}
}

// The names of files go on to a command, for leasehold commands of its own; what
// somebody took for the place of a secret does not.
func TestSecretsAreNotPassedOn(t *testing.T) {
	got := inherited([]string{"PATH=/bin", "LEASEHOLD_CREDENTIAL_FILE=/run/token", "LEASEHOLD_CREDENTIAL=lhc_abcabcabcabc_x", "LEASEHOLD_TOKEN=7",
		"LEASEHOLD_KEY=-----BEGIN PRIVATE KEY-----", "LEASEHOLD_TLS_KEY_FILE=/run/key.pem", "APP_TOKEN=lhc_its-own",
		"LEASEHOLD_GOSSIP_KEY=kI3p0f7Qm2Xx9YbVn1LrTg8sWd4uZcEhJaKoP5iRt6w=", "LEASEHOLD_KEY16=kI3p0f7Qm2Xx9YbVn1LrTg==\n", "LEASEHOLD_ID=kI3p0f7Qm2Xx9YbVn1LrTg8sWd4uZcEhJaKoP5iRt6w"})
	if want := []string{"PATH=/bin", "LEASEHOLD_CREDENTIAL_FILE=/run/token", "LEASEHOLD_TLS_KEY_FILE=/run/key.pem", "APP_TOKEN=lhc_its-own",
		"LEASEHOLD_ID=kI3p0f7Qm2Xx9YbVn1LrTg8sWd4uZcEhJaKoP5iRt6w"}; !slices.Equal(got, want) {
		t.Errorf("environment %v, want %v", got, want)
	}
}
