package consoletest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"time"

	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

// severalState has three instances: the one that serves the pages, one that answers, and one that refuses
// connections.
const severalState = "several"

// silent is the address of the instance that does not answer.
const silent = "127.0.0.1:1"

// peersOf returns the instances of a state. It starts the one that answers, which runs until the process
// ends. Nil: the state has one instance.
func peersOf(o Options, s *service) *peers.Peers {
	if o.State != severalState {
		return nil
	}
	earlier := func() time.Time { return o.Now().Add(-7 * time.Second) }
	other := &service{kind: o.State, now: earlier, start: s.start, secrets: s.secrets}
	options := peers.Options{Secret: "secret-of-the-peers-of-consoletest", Now: o.Now}
	var address string
	asked := options
	asked.Self = func() string { return address }
	asked.Others = func() ([]string, int) { return nil, 0 }
	server := httptest.NewServer(peers.New(asked).Handler(http.HandlerFunc(other.answer)))
	address = server.Listener.Addr().String()
	options.Self = func() string { return "127.0.0.1:6070" }
	options.Others = func() ([]string, int) { return []string{address, silent}, 0 }
	return peers.New(options)
}

// answer answers a question of another instance.
func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	number := func(name string) int {
		n, _ := strconv.Atoi(q.Get(name)) // the console writes it
		return n
	}
	var value any
	switch r.URL.Path {
	case "/v1/state":
		value = s.state()
	case "/v1/resets":
		value = insight.Resets{Resets: s.Audit()}
	case "/v1/top":
		value = s.Top(insight.TopQuery{By: q.Get("by"), Order: q.Get("order"), Minutes: number("minutes"), Limit: number("limit")})
	case "/v1/denials":
		f := insight.Filter{
			Rule: q.Get("rule"), Subject: q.Get("subject"), Route: q.Get("route"), Address: q.Get("address"), Request: q.Get("request"),
			Shadow: q.Get("shadow"), Limit: number("limit"),
		}
		if since, err := time.ParseDuration(q.Get("since")); err == nil {
			f.Since = s.now().Add(-since)
		}
		value = s.Denials(f)
	default:
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(value) // on an error the console has gone
}
