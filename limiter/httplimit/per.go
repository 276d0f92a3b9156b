package httplimit

import (
	"net/http"
	"time"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// perBytes bounds the memory of [PerAddress] and [PerHeader].
const perBytes = 64 << 20

// PerAddress returns middleware that admits so many requests of each client in any window of this
// length. It counts in the memory of this process, in at most 64 MiB. A client is an IPv4 address or
// the /64 network of an IPv6 address. trusted are proxies, as for [Address].
func PerAddress(requests uint64, window time.Duration, trusted ...string) (func(http.Handler) http.Handler, error) {
	return per("per-address", Network("address", 32, 64, trusted...), requests, window)
}

// PerHeader is [PerAddress] for each value of a header field, such as that of an API key. A request
// without the field is not limited.
func PerHeader(name string, requests uint64, window time.Duration) (func(http.Handler) http.Handler, error) {
	return per("per-"+name, Header("api_key", name), requests, window)
}

func per(name string, key Key, requests uint64, window time.Duration) (func(http.Handler) http.Handler, error) {
	rules, err := limiter.MakeRules(limiter.Domain{Name: "http", Rules: []limiter.Rule{{
		Key: key.Entry(), RateLimit: &limiter.RateLimit{Name: name, Terms: limiter.Terms{Limits: []limiter.Limit{{Requests: requests, Window: window}}}},
	}}})
	if err != nil {
		return nil, err
	}
	// Without a sweeper no goroutine is left behind; the bound drops logs that have expired.
	l, err := limiter.New(memstore.New(memstore.Options{SweepInterval: -1, MaxBytes: perBytes}), rules)
	if err != nil {
		return nil, err
	}
	return New(l, Options{Domain: "http", Descriptors: [][]Key{{key}}})
}
