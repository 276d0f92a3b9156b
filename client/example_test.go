package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/slidegate/slidegate/client"
)

// A client that waits and asks again if a rate limit denies a request. An order is created once,
// however often it is sent, because it has an idempotency key.
func Example() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, r.Method, r.Header.Get("Idempotency-Key"))
	}))
	defer api.Close()

	c := &http.Client{Transport: new(client.Transport)}
	req, err := http.NewRequest(http.MethodPost, api.URL, strings.NewReader("a book"))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Idempotency-Key", "order-7")
	resp, err := c.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Printf("%s %s%v\n", resp.Status, body, err)
	// Output:
	// 200 OK POST order-7
	// <nil>
}

// A batch job that stops when its limit of a day is used up, and says when to go on.
func ExampleWaitError() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/orders/3" {
			w.Header().Set("Retry-After", "28800")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer api.Close()

	c := &http.Client{Transport: &client.Transport{MaxWait: 5 * time.Minute}}
	for order := 1; order <= 5; order++ {
		resp, err := c.Get(fmt.Sprintf("%s/orders/%d", api.URL, order))
		var wait *client.WaitError
		if errors.As(err, &wait) {
			fmt.Printf("stopped at order %d: status %d, go on in %d hours\n", order, wait.StatusCode, wait.Wait/time.Hour)
			return
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	// Output:
	// stopped at order 3: status 429, go on in 8 hours
}

// Many goroutines that share a limit share a Transport too. It spreads their requests over the
// window, at most 2 s apart. The limits of the customers are paced apart.
func ExampleTransport_pace() {
	c := &http.Client{Transport: &client.Transport{
		Pace: 2 * time.Second,
		Key:  func(r *http.Request) string { return r.Header.Get("X-Api-Key") },
	}}
	fmt.Println(c.Transport.(*client.Transport).Pace)
	// Output:
	// 2s
}
