// Package client sends HTTP requests to servers with rate limits. Its [Transport] reads what a
// server says about its limits, waits, and sends the request again. It reads Retry-After,
// RateLimit, RateLimit-Policy, RateLimit-* and X-RateLimit-*. It computes waits and backoff, and
// spaces the requests of one key. A wait that is too long is a [WaitError].
//
//	c := &http.Client{Transport: new(client.Transport)}
//	resp, err := c.Get("https://api.example.com/orders")
//
// # What is repeated
//
// A request is repeated after a response with status 429, and after one with status 503 that has
// Retry-After. It must be repeatable: its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, or
// it has the header Idempotency-Key or X-Idempotency-Key. A body needs [http.Request.GetBody],
// which [http.NewRequest] sets for bytes and strings. Other requests get the response as it is.
// So do requests whose retries are used up.
//
// A 429 that has a quota with requests remaining, or a limit of 0, and no wait is not repeated: no
// wait helps. Slidegate answers so if the cost of a request is above its limit and the limit is not
// used up. Errors of the network are not repeated.
//
// # How long it waits
//
// The wait is the first of these that is valid: Retry-After in seconds or as a date; the t of
// RateLimit; RateLimit-Reset; X-RateLimit-Reset. The first retry adds a random time, up to 10 %
// of the wait and at least up to 1 s. The retry n+1 adds up to 1 s × 2^n instead, and at most
// 1 min: exponential backoff with full jitter. A 429 whose wait is missing or cannot be read gets
// this backoff alone.
//
// Transport.MaxWait bounds the sum of all waits of one request. If a wait would be longer, or would
// end after the deadline of the context, RoundTrip does not begin it. It returns a [WaitError] at
// once, with the wait and the status of the response. Other RoundTrippers return every response.
// With this error a batch can stop.
//
// # Pacing
//
// With Transport.Pace, the requests of one key go one after the other, as far apart as the limit
// allows. With 100 requests in 60 s they are 0.6 s apart. A window is stretched by 1/1000 and 1 ms,
// because clocks differ. The Transport remembers when the last requests were answered. So none is
// sent before the window has room, also if some were slow on their way. If no other client uses the
// limit and each request costs 1, only requests before the first answer can be denied. If a limit
// is above 1023, one request stands for several in this memory. The limit and window come from
// RateLimit-Policy, RateLimit-Limit or X-RateLimit-Limit with w. If there is no window, the reset
// is divided by what remains. The Transport does not space requests before the first answer. Each
// request counts as 1, whatever it costs. If one response has a wait, all requests of the key
// wait. A request that may not wait so long gets a WaitError, and is not sent.
//
// Clients that share a limit without sharing a Transport do not know of each other. They reach the
// limit, and then the random parts of their waits spread them.
//
// # Invalid fields
//
// Numbers must not be negative; fractions are rounded up. Every other text is ignored, and so is
// a field of more than 4 KiB. If a field is sent twice, or a proxy has
// joined two, the stricter value counts. Times are cut
// off at 365 days. A date is compared with the Date of the response if it has one, so the clock
// of the client need not be right. A date in the past is a wait of 0.
//
// A number in Retry-After, X-RateLimit-Reset or RateLimit-Reset below 10^9 is a delay in seconds. From 10^9
// on (the year 2001) it is Unix time in seconds, and from 10^11 on Unix time in milliseconds.
package client
