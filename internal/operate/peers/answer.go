package peers

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
)

// good begins an answer that is no refusal.
const good = "ok\n"

// Handler answers the questions of other instances with what reads answers to a GET. An instance
// without proof gets 403.
func (p *Peers) Handler(reads http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
		salt := data[:min(len(data), saltBytes)]
		var text []byte
		if err == nil {
			text, err = p.aead(asks, salt).Open(nil, nil, data[len(salt):], nil)
		}
		if err != nil {
			p.o.Log.Warn("a request of another instance was refused, because it does not prove that it has the secret of admin.peers_key_file", zap.String("address", r.RemoteAddr))
			http.Error(w, "This is for the instances of the service.", http.StatusForbidden)
			return
		}
		answer := p.aead(answers, salt).Seal(nil, nil, p.answer(r, string(salt), text, reads), nil) //nolint:gosec // the AEAD makes a random nonce
		_, _ = w.Write(answer)                                                                      // on an error the other instance has gone
	})
}

// answer returns the text of the answer to a question with proof.
func (p *Peers) answer(r *http.Request, salt string, text []byte, reads http.Handler) []byte {
	var q question
	now := p.o.Now()
	if json.Unmarshal(text, &q) != nil {
		return []byte("it has another version of rls")
	}
	inner, err := http.NewRequestWithContext(r.Context(), http.MethodGet, q.Get, http.NoBody)
	switch difference := now.Sub(q.Time).Abs(); {
	case err != nil:
		return []byte("it has another version of rls")
	case q.To != p.o.Self():
		return []byte("the address is that of another instance")
	case difference > validFor:
		return []byte("the clocks of the instances differ by " + difference.Round(time.Second).String())
	case !p.seen.first(salt, now):
		return []byte("it has seen the question, or too many others")
	}
	to := &recorded{header: make(http.Header), status: http.StatusOK}
	to.body.WriteString(good)
	if reads.ServeHTTP(to, inner); to.status != http.StatusOK {
		return []byte("it answers " + http.StatusText(to.status))
	}
	return to.body.Bytes()
}

// recorded is the answer of a handler.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorded) Header() http.Header                { return r.header }
func (r *recorded) WriteHeader(status int)             { r.status = status }
func (r *recorded) Write(data []byte) (n int, _ error) { return r.body.Write(data) }

// validFor is how far the time of a question may differ from now. maxSeen bounds how many questions are
// remembered in twice that time: with more, an instance refuses them.
const (
	validFor = 30 * time.Second
	maxSeen  = 50_000
)

// seen remembers the questions that may still be repeated. Its zero value has none.
type seen struct {
	mu          sync.Mutex
	since       time.Time
	now, before map[string]struct{} // by their salts
}

// first reports whether a question comes for the first time.
func (s *seen) first(salt string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now == nil || now.Sub(s.since) > 2*validFor {
		s.since, s.now, s.before = now, make(map[string]struct{}), s.now
	}
	_, is := s.now[salt]
	_, was := s.before[salt]
	if is || was || len(s.now) == maxSeen {
		return false
	}
	s.now[salt] = struct{}{}
	return true
}
