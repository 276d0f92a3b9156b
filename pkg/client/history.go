package client

import (
	"slices"
	"time"
)

// places bounds what a history keeps, to 8 KiB. A larger limit has no history: its requests are only
// spaced.
const places = 1024

// A history keeps one time for each of the last requests of a lane: that of the answer, because the
// server has counted the request by then, or until it arrives, that of the sending. So it tells when a
// window has room again. Times are since begin.
type history struct {
	begin time.Time
	at    []time.Duration // in order
}

// pass notes a request that is sent. The caller gives the result to answered.
func (h *history) pass(now time.Time) time.Duration {
	if len(h.at) == places {
		h.at = slices.Delete(h.at, 0, 1)
	}
	at := now.Sub(h.begin)
	h.at = append(h.at, at)
	return at
}

// answered notes that a request was answered. One that was denied is not counted.
func (h *history) answered(passed time.Duration, now time.Time, denied bool) {
	i, found := slices.BinarySearch(h.at, passed)
	if !found {
		return // it is forgotten
	}
	h.at = slices.Delete(h.at, i, i+1)
	if !denied {
		h.at = append(h.at, now.Sub(h.begin))
	}
}

// room returns the time at which a window has room, if limit requests pass in each. It returns false
// if it has room in any case, or if the limit is unknown or too large.
func (h *history) room(limit int64, window time.Duration) (at time.Time, ok bool) {
	if limit <= 0 || int64(len(h.at)) < limit {
		return at, false
	}
	return h.begin.Add(h.at[len(h.at)-int(limit)] + window), true
}
