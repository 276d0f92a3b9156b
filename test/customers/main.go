// Command customers is a customer source for tiers.source http: it returns the subject of an
// API key. Tests run it as a process of their own, which they can kill and freeze. They set
// its records over the same port:
//
//	GET, POST /lookup          answers a question
//	PUT, DELETE /records/NAME  sets the answer for a digest, an id or a key
//	PUT, DELETE /rubbish       sets an answer for every question, with the status ?status=
//	GET /asked                 returns every question so far
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// unknown is the answer for an unknown key.
	unknown = `{"subject":null}`
	// maxBody bounds a question and a record.
	maxBody = 1 << 20
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "customers:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("customers", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "`address` to listen on")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: newCustomers(), ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	fmt.Fprintf(out, "customers: listening on %s\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A question is one request to /lookup.
type question struct {
	At     time.Time `json:"at"`
	Method string    `json:"method"`
	Target string    `json:"target"`
	Header string    `json:"header"` // all fields, as text
	Body   string    `json:"body"`
}

// customers holds the records and the questions.
type customers struct {
	mu      sync.Mutex
	records map[string]string
	rubbish *rubbish // nil if records answer
	asked   []question
}

// rubbish is an answer for every question.
type rubbish struct {
	status int
	body   string
}

func newCustomers() http.Handler {
	c := &customers{records: make(map[string]string), asked: []question{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/lookup", c.lookup)
	mux.HandleFunc("PUT /records/{name}", c.change(func(r *http.Request, body string) { c.records[r.PathValue("name")] = body }))
	mux.HandleFunc("DELETE /records/{name}", c.change(func(r *http.Request, _ string) { delete(c.records, r.PathValue("name")) }))
	mux.HandleFunc("PUT /rubbish", c.change(func(r *http.Request, body string) {
		status, err := strconv.Atoi(r.FormValue("status"))
		if err != nil {
			status = http.StatusOK
		}
		c.rubbish = &rubbish{status, body}
	}))
	mux.HandleFunc("DELETE /rubbish", c.change(func(*http.Request, string) { c.rubbish = nil }))
	mux.HandleFunc("GET /asked", func(w http.ResponseWriter, _ *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = json.NewEncoder(w).Encode(c.asked) // on an error the test sees a short answer
	})
	return mux
}

// change returns a handler that changes c by do.
func (c *customers) change(do func(r *http.Request, body string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		do(r, string(body))
	}
}

func (c *customers) lookup(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var asked struct{ Digest, ID, Key string }
	if r.Method == http.MethodPost {
		if err := json.Unmarshal(body, &asked); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	} else {
		asked.Digest, asked.ID = r.URL.Query().Get("digest"), r.URL.Query().Get("id")
	}
	status := http.StatusOK
	c.mu.Lock()
	c.asked = append(c.asked, question{at, r.Method, r.RequestURI, fmt.Sprint(r.Header), string(body)})
	answer, ok := c.records[asked.Digest+asked.ID+asked.Key] // two of them are empty
	if !ok {
		status, answer = http.StatusNotFound, unknown
	}
	if c.rubbish != nil {
		status, answer = c.rubbish.status, c.rubbish.body
	}
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer) // on an error the client has gone
}
