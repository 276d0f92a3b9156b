package stack

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

// An Answer is a response as the client saw it.
type Answer struct {
	Status int
	Header http.Header
	Body   string
	// Sent is before the first byte of the request, Received after the last one of
	// the response: the decision was in between.
	Sent, Received time.Time
}

// A Client sends requests over HTTP/1.1 from one address.
type Client struct {
	t    *testing.T
	url  string
	http *http.Client
}

// NewClient returns a client of url that calls from an address of the loopback network.
func NewClient(t *testing.T, url, address string) *Client {
	t.Helper()
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &Client{t: t, url: url, http: &http.Client{Transport: transport, Timeout: process.Patience}}
}

// Try sends a request with header fields given as name, value, name, value.
func (c *Client) Try(ctx context.Context, path string, header ...string) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return Answer{}, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return c.Do(req)
}

// Do sends a request.
func (c *Client) Do(req *http.Request) (Answer, error) {
	got := Answer{Sent: time.Now()}
	resp, err := c.http.Do(req)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	got.Received = time.Now()
	got.Status, got.Header, got.Body = resp.StatusCode, resp.Header, string(body)
	return got, err
}

// Get is Try for a request that must be answered.
func (c *Client) Get(path string, header ...string) Answer {
	c.t.Helper()
	got, err := c.Try(c.t.Context(), path, header...)
	if err != nil {
		c.t.Fatalf("GET %s: %v", path, err)
	}
	return got
}

// SendFromMany sends 300 requests from 50 clients at once, divided among the stacks.
func SendFromMany(t *testing.T, key string, stacks ...*Stack) (passed, denied int) {
	t.Helper()
	var ok, limited atomic.Int64
	clients := make([]*Client, 50)
	for i := range clients {
		clients[i] = stacks[i%len(stacks)].From("127.0.0.1")
	}
	process.Concurrently(t, len(clients), func(i int) error {
		for range 6 {
			got, err := clients[i].Try(t.Context(), "/", "x-api-key", key)
			if err != nil {
				return err
			}
			switch got.Status {
			case http.StatusOK:
				ok.Add(1)
			case http.StatusTooManyRequests:
				limited.Add(1)
			default:
				t.Errorf("got status %d, want 200 or 429", got.Status)
			}
		}
		return nil
	})
	return int(ok.Load()), int(limited.Load())
}

// Want sends n requests and expects one status for all of them.
func (c *Client) Want(status, n int, path string, header ...string) {
	c.t.Helper()
	for i := range n {
		if got := c.Get(path, header...); got.Status != status {
			c.t.Errorf("request %d of %d for %s %q: got %d, want %d (%v)", i+1, n, path, header, got.Status, status, got.Header)
		}
	}
}

// A Problem is the body of a denial.
type Problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Rule       string   `json:"rule"`
	Limit      int      `json:"limit"`
	Window     float64  `json:"window"`
	RetryAfter int      `json:"retry_after"`
	Cost       uint64   `json:"cost"`
	Violated   []string `json:"violated-policies"`
}

// ProblemOf reads the body of a denial.
func ProblemOf(t *testing.T, a Answer) Problem {
	t.Helper()
	var p Problem
	d := json.NewDecoder(strings.NewReader(a.Body))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		t.Errorf("the body of a %d is no problem document: %v: %q", a.Status, err, a.Body)
	}
	return p
}
