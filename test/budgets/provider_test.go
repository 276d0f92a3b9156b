package budgets

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// An api is one of the forms in which language models are asked.
type api struct {
	path, stream string // of requests; with stream empty, the body asks for a stream
	key          string // the header with the key, and what is before the key in it
	form         string // of denials
	bound        string // of the output, in a body
	// usage is an answer. A stream begins with before, has a text for each token, and ends with after.
	usage        func(in, out int) string
	before, text string
	after        func(in, out int) string
}

func sum(format string) func(in, out int) string {
	return func(in, out int) string { return fmt.Sprintf(format, in, out, in+out) }
}

// cached is what an Anthropic answer has besides the input: tokens from a cache, and tokens for it.
const cached = 7

var apis = map[string]api{
	"openai-chat": {
		path: "/v1/chat/completions", key: "authorization: Bearer ", form: "openai", bound: `"max_completion_tokens": %d`,
		usage: sum(`{"model": "m", "choices": [], "usage": {"prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d}}`),
		text:  `data: {"model": "m", "choices": [{"index": 0, "delta": {"content": "word"}}], "usage": null}`,
		after: sum(`data: {"model": "m", "choices": [], "usage": {"prompt_tokens": %d, "completion_tokens": %d, "total_tokens": %d}}` + "\n\ndata: [DONE]"),
	},
	"openai-responses": {
		path: "/v1/responses", key: "authorization: Bearer ", form: "openai", bound: `"max_output_tokens": %d`,
		usage:  sum(`{"model": "m", "usage": {"input_tokens": %d, "output_tokens": %d, "total_tokens": %d}}`),
		before: "event: response.created\n" + `data: {"type": "response.created", "response": {"model": "m", "max_output_tokens": %d, "usage": null}}`,
		text:   "event: response.output_text.delta\n" + `data: {"type": "response.output_text.delta", "delta": "word"}`,
		after:  sum("event: response.completed\n" + `data: {"type": "response.completed", "response": {"model": "m", "usage": {"input_tokens": %d, "output_tokens": %d, "total_tokens": %d}}}`),
	},
	"anthropic": {
		path: "/v1/messages", key: "x-api-key: ", form: "anthropic", bound: `"max_tokens": %d`,
		usage: func(in, out int) string {
			return fmt.Sprintf(`{"model": "m", "type": "message", "usage": {"input_tokens": %d, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output_tokens": %d}}`, in-cached, out)
		},
		before: "event: message_start\n" + `data: {"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": %d, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3, "output_tokens": 1}}}`,
		text:   "event: content_block_delta\n" + `data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word"}}`,
		after: func(_, out int) string {
			return fmt.Sprintf("event: message_delta\n"+`data: {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": %d}}`+"\n\nevent: message_stop\n"+`data: {"type": "message_stop"}`, out)
		},
	},
	"gemini": {
		path: "/v1beta/models/m:generateContent", stream: "/v1beta/models/m:streamGenerateContent", key: "x-goog-api-key: ", bound: `"generationConfig": {"maxOutputTokens": %d}`,
		usage: sum(`{"modelVersion": "m", "candidates": [], "usageMetadata": {"promptTokenCount": %d, "candidatesTokenCount": %d, "totalTokenCount": %d}}`),
		text:  `data: {"modelVersion": "m", "candidates": [{"content": {"parts": [{"text": "word"}]}}], "usageMetadata": {"promptTokenCount": 1, "totalTokenCount": 1}}`, // without the output
		after: sum(`data: {"modelVersion": "m", "candidates": [], "usageMetadata": {"promptTokenCount": %d, "candidatesTokenCount": %d, "totalTokenCount": %d}}`),
	},
	// The application of budgets-1.36.yaml, which names the cost in a header.
	"": {path: "/", key: "x-api-key: ", bound: `"max_tokens": %d`, usage: func(int, int) string { return `{}` }, text: "data: word", after: func(int, int) string { return "data: end" }},
}

// A provider is the application: it answers as language models do, and keeps the ledger that tests
// believe. The headers of a request say what it does:
//
//	x-in, x-out   the tokens of the request and of the answer
//	x-pace        the time between the words of a stream
//	x-does        fail: 503, and fail-twice: at the first two tries of an x-id; reset: it ends the connection
//	              before its answer, and reset-in-body: behind some words; hang: it never answers, and silent: it
//	              never ends
type provider struct {
	mu    sync.Mutex
	spent map[string]int // tokens by key
	money map[string]int // millionths of a dollar by key, at the prices of budgets.yaml
	tries map[string]int // by x-id
	costs map[string]int // tokens by x-id
	all   int            // requests that have reached it
	// forged is true if one of them had a header that only calls of Envoy have.
	forged bool
}

func (p *provider) spend(key, id string, in, out int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spent == nil {
		p.spent, p.money, p.costs = make(map[string]int), make(map[string]int), make(map[string]int)
	}
	p.spent[key] += in + out
	p.costs[id] += in + out
	p.money[key] += 3*in + 15*out
}

// ledger returns what a key has cost so far, and how many requests of all keys have come.
func (p *provider) ledger(key string) (tokens, money, requests int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spent[key], p.money[key], p.all
}

// retried returns how many requests came more than once.
func (p *provider) retried() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, tries := range p.tries {
		if tries > 1 {
			n++
		}
	}
	return n
}

// gotForged reports whether a request had a header that only calls of Envoy have.
func (p *provider) gotForged() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.forged
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var asks struct{ Stream bool }
	_ = json.Unmarshal(body, &asks)
	p.mu.Lock()
	p.all++
	for _, name := range forged {
		p.forged = p.forged || r.Header.Get(name) != ""
	}
	if p.tries == nil {
		p.tries = make(map[string]int)
	}
	id := r.Header.Get("x-id")
	p.tries[id]++
	tries := p.tries[id]
	p.mu.Unlock()
	is := apis[""]
	for _, one := range apis {
		if one.path != "/" && (r.URL.Path == one.path || r.URL.Path == one.stream) {
			is = one
			asks.Stream = asks.Stream || r.URL.Path == one.stream
		}
	}
	header, prefix, _ := strings.Cut(is.key, ": ")
	key := strings.TrimPrefix(r.Header.Get(header), prefix)
	in, out := number(r, "x-in"), number(r, "x-out")
	does := r.Header.Get("x-does")
	switch {
	case does == "fail", does == "fail-twice" && tries < 3:
		if is.path == "/" {
			w.Header().Set("X-Cost", "0")
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case does == "reset":
		panic(http.ErrAbortHandler)
	}
	p.spend(key, id, in, 0)
	if does == "hang" {
		<-r.Context().Done()
		return
	}
	if is.path == "/" {
		w.Header().Set("X-Cost", fmt.Sprint(in+out))
	}
	if !asks.Stream {
		p.pause(r.Context(), r.Header.Get("x-pace"))
		p.spend(key, id, 0, out)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, is.usage(in, out))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	events := http.NewResponseController(w)
	say := func(event string) {
		_, _ = io.WriteString(w, event+"\n\n")
		_ = events.Flush()
	}
	if is.before != "" {
		say(fmt.Sprintf(is.before, in-cached))
	}
	for i := range out {
		if p.pause(r.Context(), r.Header.Get("x-pace")); r.Context().Err() != nil {
			return
		}
		p.spend(key, id, 0, 1)
		say(is.text)
		switch {
		case i < out/2:
		case does == "reset-in-body":
			panic(http.ErrAbortHandler)
		case does == "silent":
			<-r.Context().Done()
			return
		}
	}
	say(is.after(in, out))
}

func number(r *http.Request, header string) (n int) {
	_, _ = fmt.Sscan(r.Header.Get(header), &n)
	return n
}

func (p *provider) pause(ctx context.Context, text string) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
