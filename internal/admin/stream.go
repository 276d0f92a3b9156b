package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/clientaddr"
	"github.com/slidegate/slidegate/internal/insight"
)

var filterParams = []string{"rule", "subject", "route", "address", "since", "shadow"}

// maxDenials bounds one answer.
const maxDenials = 100_000

// filter reads which denials a request asks for. A relative since counts back from now.
func filter(query url.Values, now time.Time) (f insight.Filter, err error) {
	f = insight.Filter{Rule: query.Get("rule"), Subject: query.Get("subject"), Route: query.Get("route"), Address: query.Get("address")}
	if f.Shadow, err = choice(query, "shadow", shadows, ""); err != nil {
		return f, err
	}
	if f.Limit, err = number(query, "limit", maxDenials, 0); err != nil {
		return f, err
	}
	if f.Address != "" && !isNetwork(f.Address) {
		return f, errors.New("address: write an address or a network, such as 192.0.2.0/24")
	}
	f.Since, err = since(query, now)
	return f, err
}

func isNetwork(text string) bool {
	_, err := netip.ParsePrefix(text)
	_, ok := clientaddr.Parse(text)
	return err == nil || ok
}

// since returns the time of the parameter since, or the zero time if there is none.
func since(query url.Values, now time.Time) (time.Time, error) {
	text := query.Get("since")
	if !query.Has("since") {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(-d), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("since=%s: write how long ago, such as 5m, or a time such as 2026-01-31T09:30:00Z", repeated(text))
	}
	return t, nil
}

func (a *api) denials(w http.ResponseWriter, _ *http.Request, query url.Values) {
	f, err := filter(query, time.Now())
	if err != nil {
		refuse(w, http.StatusBadRequest, "%s", err)
		return
	}
	head, last := a.Insight.Last(f)
	numbers, err := json.Marshal(head)
	const begin = `{"denials":[`
	after, ok := bytes.CutPrefix(numbers, []byte(begin))
	if err != nil || !ok {
		refuse(w, http.StatusInternalServerError, "The answer is no JSON. This is a bug; please report it.")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// One denial after the other, so that a long list needs no memory of its own.
	write := func(text []byte) bool { _, err := w.Write(text); return err == nil }
	write([]byte(begin))
	separator := ""
	for d := range last {
		data, err := json.Marshal(d)
		if err != nil || !write(append([]byte(separator), data...)) {
			return // the client has gone
		}
		separator = ","
	}
	write(append(after, '\n'))
}

const (
	// heartbeat is how often a stream without denials sends a comment, so that proxies and
	// clients see that it lives.
	heartbeat = 15 * time.Second
	// writeTimeout bounds one write to a client that does not read.
	writeTimeout = 10 * time.Second
)

// stream sends denials as server-sent events. With Last-Event-ID it begins with the denials
// after that one that the process still has.
func (a *api) stream(w http.ResponseWriter, r *http.Request, query url.Values) {
	f, err := filter(query, time.Now())
	f.Past = true
	if id := r.Header.Get("Last-Event-ID"); err == nil && id != "" {
		if f.After, err = strconv.ParseUint(id, 10, 64); err != nil {
			err = errors.New("Last-Event-ID is not a number: send the id of the last event, or no such header")
		}
	} else if !query.Has("since") {
		f.After = a.newest()
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "%s", err)
		return
	}
	places, most := []chan struct{}{a.streams}, maxStreams
	if !a.ofConsole(r) {
		places, most = append(places, a.shared), maxStreams-consoleStreams
	}
	for _, place := range places {
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
		default:
			w.Header().Set("Retry-After", "10")
			refuse(w, http.StatusServiceUnavailable, "There are %d streams, which is the most that one instance serves. Close one, or ask GET /v1/denials now and then.", most)
			return
		}
	}
	s := &stream{w: w, control: http.NewResponseController(w), waiting: make(chan insight.Denial), beat: a.heartbeat, timeout: a.writeTimeout}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back
	if s.begin() != nil || r.Method == http.MethodHead {
		return
	}
	s.run(r.Context(), a.Insight, f)
}

// ofConsole reports whether a page of the console asks: of a person who is logged in, or in a browser
// on this machine. Browsers do not let pages of other origins send such a request.
func (a *api) ofConsole(r *http.Request) bool {
	return a.Access.Caller(r).LoggedIn || local(r) && r.Header.Get("Sec-Fetch-Site") == "same-origin"
}

// newest returns the id of the newest denial that the process has, or 0.
func (a *api) newest() uint64 {
	if d := a.Insight.Denials(insight.Filter{Limit: 1}).Denials; len(d) > 0 {
		return d[0].ID
	}
	return 0
}

// A stream writes events to one client.
type stream struct {
	w             io.Writer
	control       *http.ResponseController
	waiting       chan insight.Denial
	beat, timeout time.Duration
}

// begin lifts the deadlines of the server for this stream, and sends the header.
func (s *stream) begin() error {
	_ = s.control.SetReadDeadline(time.Time{}) // only net/http's server has deadlines
	return s.send(": denials of this instance, as they happen\nretry: 3000\n\n")
}

// run sends the denials that f chooses, until ctx ends or the client has gone.
func (s *stream) run(ctx context.Context, in *insight.Insight, f insight.Filter) {
	ctx, cancel := context.WithCancel(ctx)
	followed := make(chan struct{})
	var ended error
	defer func() { cancel(); <-followed }()
	go func() {
		defer close(followed)
		// While the client reads too slowly, Follow leaves denials out and counts them, and ends if
		// the client is far behind. The client comes back, as it does if other callers have taken the
		// last place.
		ended = in.Follow(ctx, f, func(d insight.Denial) bool {
			select {
			case s.waiting <- d:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-followed:
			if ended != nil {
				_ = s.send(fmt.Sprintf(": this stream ends: %v\n\n", ended)) // the stream ends anyway
			}
			return // the client comes back, or the process stops
		case d := <-s.waiting:
			err = s.deny(&d)
		case <-beat.C:
			err = s.send(": still here\n\n")
		}
		if err != nil {
			return
		}
	}
}

func (s *stream) deny(d *insight.Denial) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	return s.send(fmt.Sprintf("event: denial\nid: %d\ndata: %s\n\n", d.ID, data))
}

// send writes a text to the client. Between two texts there is no deadline: HTTP/2 ends a stream
// whose deadline passes, also if nothing waits to be written.
func (s *stream) send(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	_ = s.control.SetWriteDeadline(time.Time{})
	return nil
}
