package traffic

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// EnvoyConfig is the configuration of Envoy, from the folder of the module.
const EnvoyConfig = "../envoy/ratelimit.yaml"

// A Response is what a client learns from a response of Envoy.
type Response struct {
	Allowed    bool
	RetryAfter time.Duration // of a denial
	Header     http.Header
	Received   time.Time // when the header came
}

// Get sends a GET request with an API key, or without one if key is empty. It reads the response to its
// end. A status other than 200 and 429 is an error, and so is a 429 without Retry-After.
func Get(ctx context.Context, client *http.Client, url, key string) (Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return Response{}, err
	}
	if key != "" {
		r.Header.Set("x-api-key", key)
	}
	resp, err := client.Do(r)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	a := Response{Allowed: resp.StatusCode == http.StatusOK, Header: resp.Header, Received: time.Now()}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return a, err
	}
	switch {
	case a.Allowed:
	case resp.StatusCode != http.StatusTooManyRequests:
		return a, fmt.Errorf("answer %s, want 200 or 429", resp.Status)
	default:
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil {
			return a, fmt.Errorf("a denial with Retry-After %q", resp.Header.Get("Retry-After"))
		}
		a.RetryAfter = time.Duration(seconds) * time.Second
	}
	return a, nil
}
