package httpfence_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasehold-dev/leasehold/ownership/fence"
	"github.com/leasehold-dev/leasehold/ownership/fence/httpfence"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(writerURL); url != "" {
		os.Exit(writer(url))
	}
	goleak.VerifyTestMain(m)
}

var quiet = httpfence.Logger(slog.New(slog.DiscardHandler))

func stamp(token fence.Token, owner string) fence.Stamp {
	return fence.Stamp{Keyspace: "orders", Partition: 17, Token: token, Owner: owner}
}

func with(s fence.Stamp) context.Context {
	return fence.NewContext(context.Background(), s, 0)
}

// serve starts a server and a client with nothing left over at the end.
func serve(t *testing.T, h http.Handler) (*httptest.Server, *http.Client) {
	t.Helper()
	srv := httptest.NewServer(h)
	base := &http.Transport{}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		srv.Close()
	})
	return srv, &http.Client{Transport: &httpfence.Transport{Base: base}}
}

func plain(c *http.Client) *http.Client {
	return &http.Client{Transport: c.Transport.(*httpfence.Transport).Base}
}

// answer is a response whose body has been read and closed.
type answer struct {
	StatusCode int
	Header     http.Header
	body       string
}

// send makes one stamped request.
func send(t *testing.T, c *http.Client, method, url string, s fence.Stamp) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(with(s), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	err = httpfence.CheckResponse(resp)
	_, _ = io.Copy(io.Discard, resp.Body)
	return answer{StatusCode: resp.StatusCode, Header: resp.Header}, err
}
