package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/slidegate/slidegate/internal/insight"
	"github.com/slidegate/slidegate/internal/terminal"
	"github.com/slidegate/slidegate/internal/words"
)

const (
	// silence is how long a stream may be silent. The service sends a comment every 15 s.
	silence = time.Minute
	// maxEvent bounds a line of a stream, in bytes.
	maxEvent = 1 << 20
	// firstRetry and lastRetry are the waits between connections.
	firstRetry, lastRetry = 250 * time.Millisecond, 15 * time.Second
)

// A piece is what a stream has for the terminal: a denial, or a text for standard error.
type piece struct {
	denial *seen
	note   string
}

// follow prints the denials in all, and those that come until ctx ends.
func (d *denialsCmd) follow(ctx context.Context, c *caller, values url.Values, all []answer[insight.Denials]) error {
	several := len(c.instances) > 1
	pieces := make(chan piece)
	errs := make([]error, len(all))
	var streams sync.WaitGroup
	for i, a := range all {
		s := &stream{caller: c, from: a.from, query: values.Encode(), pieces: pieces}
		if several {
			s.name = a.from.name
		}
		if a.err == nil {
			for _, old := range a.value.Denials {
				s.last = max(s.last, old.ID)
			}
			s.known = true
		}
		streams.Go(func() { errs[i] = s.run(ctx, a.err) })
	}
	go func() {
		streams.Wait()
		close(pieces)
	}()
	out := newFollower(d.JSON, several)
	for _, old := range merged(all, several) {
		if err := out.print(&old); err != nil {
			return err
		}
	}
	for p := range pieces {
		if p.denial == nil {
			fmt.Fprintln(os.Stderr, "rls:", p.note)
		} else if err := out.print(p.denial); err != nil {
			return err // the reader of a pipe has gone; the process ends, and the streams with it
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

// A follower prints denials one by one, in columns of one width.
type follower struct {
	json  bool
	page  page
	begun bool
}

func newFollower(asJSON, several bool) *follower {
	return &follower{json: asJSON, page: page{width: widthOf(os.Stdout), paint: coloursOf(os.Stdout), several: several}}
}

// followed are the widths of columns in which most denials fit, by their titles.
var followed = map[string]int{"TIME": 8, "RULE": 16, "WHO": 18, "TIER": 8, "USED": 7, "LIMIT": 14, "WAIT": 7, "ROUTE": 14, "REQUEST": 36, "NOTE": 24, "INSTANCE": 20}

func (f *follower) print(d *seen) error {
	if f.json {
		return printLine(d)
	}
	t := denialTable(f.page)
	for i := range t.Columns {
		t.Columns[i].Want = followed[t.Columns[i].Title]
	}
	empty := t.Widths()
	addDenial(t, d, f.page)
	if !f.begun {
		f.begun = true
		t.WriteTitles(&stdout, empty)
	}
	for i, c := range t.Columns {
		if f.page.width == terminal.Unbounded || c.Least == 0 && empty[i] >= 0 {
			empty[i] = max(empty[i], terminal.Columns(t.Rows[0][i].Text)) // numbers are never cut
		}
	}
	t.WriteRow(&stdout, empty, t.Rows[0])
	return stdout.err
}

// A stream reads the denials of one instance, and connects again when a connection ends.
type stream struct {
	caller *caller
	from   instance
	name   string // of the instance in denials; empty if there is only one
	query  string
	pieces chan<- piece
	// last is the id of the last denial, if known.
	last  uint64
	known bool
}

// run reads until ctx ends or the instance refuses for good. problem is why the instance did
// not answer before, or nil.
func (s *stream) run(ctx context.Context, problem error) error {
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = firstRetry, lastRetry
	away := false
	for {
		if problem != nil {
			if refused := new(statusError); errors.As(problem, &refused) && refused.code/100 == 4 && refused.code != http.StatusTooManyRequests {
				problem = fmt.Errorf("%s: %w", s.from.name, problem)
				s.say(ctx, problem.Error())
				return problem
			}
			if !away {
				s.say(ctx, fmt.Sprintf("%s: %v; rls tries again", s.from.name, problem))
			}
			away = true
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(waits.NextBackOff()):
			}
		}
		problem = s.read(ctx, func() {
			waits.Reset()
			if away {
				s.say(ctx, s.from.name+": connected again; denials that it no longer keeps are missing")
			}
			away = false
		})
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (s *stream) say(ctx context.Context, note string) { s.put(ctx, piece{note: note}) }

func (s *stream) put(ctx context.Context, p piece) {
	select {
	case s.pieces <- p:
	case <-ctx.Done():
	}
}

// read reads one connection until it ends, which is an error.
func (s *stream) read(ctx context.Context, connected func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.known {
		header.Set("Last-Event-ID", strconv.FormatUint(s.last, 10))
	}
	alive := time.AfterFunc(s.caller.timeout, cancel)
	defer alive.Stop()
	response, err := s.caller.send(ctx, s.from, http.MethodGet, "/v1/denials/stream?"+s.query, nil, header)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // only read
	connected()
	s.known = true
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	var event, data string
	for alive.Reset(silence); lines.Scan(); alive.Reset(silence) {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			event = value
		case "data":
			data += value
		case "":
			if lines.Text() == "" && data != "" {
				if err := s.event(ctx, event, data); err != nil {
					return err
				}
			}
			if lines.Text() == "" {
				event, data = "", ""
			}
		}
		if len(data) > maxEvent {
			return errors.New("an event of the stream is too long")
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("the stream ended: %w", err)
	}
	return fmt.Errorf("the stream ended: %w", io.ErrUnexpectedEOF)
}

// event passes on an event of the stream.
func (s *stream) event(ctx context.Context, name, data string) error {
	if name != "denial" {
		return nil // of a later version
	}
	d := seen{Admin: s.name}
	if err := json.Unmarshal([]byte(data), &d.Denial); err != nil {
		return fmt.Errorf("an event of the stream: %w", err)
	}
	if d.LeftOut > 0 {
		s.say(ctx, fmt.Sprintf("%s: the stream has left out %s", s.from.name, words.Counted(d.LeftOut, "denial")))
	}
	s.last = d.ID
	s.put(ctx, piece{denial: &d})
	return nil
}
