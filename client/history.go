package client

import (
	"slices"
	"time"
)

// maxTimes bounds what a history keeps: 8 KiB.
const maxTimes = 1024

// A history keeps one time for each of the last requests of a lane: that of the answer, because the
// server has counted the request by then, or until it arrives, that of the sending. So it knows when a
// window has room again. Times are since begin.
type history struct {
	begin time.Time
	at    []time.Duration // in order
	size  int64           // how many requests each time stands for; 0 means 1
	until int64           // how many requests pass before the next one that is kept
}

// count makes room for a limit. If a time then stands for another number of requests, the history is
// forgotten.
func (h *history) count(limit int64) {
	if size := (limit + maxTimes - 2) / (maxTimes - 1); size != max(h.size, 1) {
		h.at, h.size, h.until = h.at[:0], size, 0
	}
}

// unkept is what pass returns for a request whose time is not kept, because another one stands for it.
const unkept = time.Duration(-1)

// pass notes a request that is sent. The caller gives the result to answered.
func (h *history) pass(now time.Time) time.Duration {
	if h.until > 0 {
		h.until--
		return unkept
	}
	h.until = max(h.size, 1) - 1
	if len(h.at) == maxTimes {
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
	if !denied || h.size > 1 {
		h.at = append(h.at, now.Sub(h.begin))
	}
}

// room returns the time at which a window has room, if limit requests pass in each. It returns false
// if it has room in any case, or if the limit is unknown.
func (h *history) room(limit int64, window time.Duration) (at time.Time, ok bool) {
	most := limit
	if h.size > 1 {
		most = limit/h.size - 1
	}
	if limit <= 0 || int64(len(h.at)) < most {
		return at, false
	}
	return h.begin.Add(h.at[len(h.at)-int(most)] + window), true
}
