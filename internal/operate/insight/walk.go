package insight

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/slidegate/slidegate/internal/core/explain"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
)

// The stages of a walk.
const (
	atRules   = iota // rules whose logs have known names
	atSearch         // logs of other rules, as the store lists them
	atMissing        // other rules without logs
	atEnd
)

// A walk goes over the limits of a subject. Its fields are the cursor of a page. They have no
// value of a request: a log is known by its digest.
type walk struct {
	// Identity is that of the subject; see [subject.identity].
	Identity uint64 `json:"i"`
	Stage    int    `json:"s"`
	// At is the next rule, or the current search.
	At int `json:"a"`
	// List is the cursor of the store's list. The logs of the call with it whose digest is at
	// most After are listed already.
	List  string `json:"l,omitempty"`
	After []byte `json:"n,omitempty"`
	// Local is true once the store did not answer, so that the local logs of this process are listed.
	Local bool `json:"o,omitempty"`
	// Seen has a bit for each rule of which a log was found.
	Seen []byte `json:"r,omitempty"`

	subject *subject
	insight *Insight
	problem error // of the last list; nil: none
	full    bool  // the next limits do not fit into the room
}

// storeWait bounds each call of the store for a question.
const storeWait = 1500 * time.Millisecond

// maxCursor bounds the text of a cursor, in bytes.
const maxCursor = 32 << 10

var errCursor = &InvalidError{"cursor: the list cannot continue from it, because the rules or the query have changed; begin again without it"}

var errEarlier = errors.New("it did not answer while an earlier page was made")

// walk begins a walk, or continues it at a cursor.
func (i *Insight) walk(s *subject, cursor string) (*walk, error) {
	w := &walk{Identity: s.identity()}
	if cursor != "" {
		var at walk
		if !readCursor(cursor, &at) || at.Identity != w.Identity ||
			at.Stage < atRules || at.Stage > atEnd || at.At < 0 {
			return nil, errCursor
		}
		w = &at
	}
	w.subject, w.insight = s, i
	return w, nil
}

// cursor returns where the walk is. It is empty at the end.
func (w *walk) cursor() string {
	if w.Stage == atEnd {
		return ""
	}
	return cursorOf(w)
}

// cursorOf returns where a list has come to as text. at is a struct of numbers and texts.
func cursorOf(at any) string {
	b, _ := json.Marshal(at) // it has no error
	return base64.RawURLEncoding.EncodeToString(b)
}

// readCursor reads what cursorOf has made. It returns false for other texts.
func readCursor(text string, to any) bool {
	b, err := base64.RawURLEncoding.DecodeString(text)
	return err == nil && len(text) <= maxCursor && json.Unmarshal(b, to) == nil
}

// step goes on by a bounded amount of work, and returns at most room limits, but all of one
// rule. It returns none if there are none in this step. At the end, Stage is atEnd.
func (w *walk) step(ctx context.Context, room int) ([]explain.AccountLimit, error) {
	switch w.Stage {
	case atRules:
		return w.overRules(room, atSearch, func(i int) []explain.AccountLimit {
			limits, _ := w.subject.Rule(i)
			return limits
		}), nil
	case atSearch:
		return w.search(ctx, room)
	default:
		return w.overRules(room, atEnd, func(i int) []explain.AccountLimit {
			if w.seen(i) {
				return nil
			}
			return w.subject.NoLog(i)
		}), nil
	}
}

// overRules returns the limits that of returns for each rule, and then goes to a stage.
func (w *walk) overRules(room, then int, of func(int) []explain.AccountLimit) (all []explain.AccountLimit) {
	for ; w.At < w.subject.Len(); w.At++ {
		if w.subject.leavesOut(w.At) {
			continue
		}
		limits := slices.DeleteFunc(slices.Clone(of(w.At)), func(l explain.AccountLimit) bool { return !w.subject.matches(l.Rule) })
		if len(all)+len(limits) > room && room < pageLimits+len(all) {
			w.full = true
			return all
		}
		all = append(all, limits...)
	}
	w.Stage, w.At = then, 0
	return all
}

// search makes one call of the store's list.
func (w *walk) search(ctx context.Context, room int) (limits []explain.AccountLimit, err error) {
	searches := w.subject.Searches()
	if w.At >= len(searches) {
		w.Stage, w.At = atMissing, 0
		return nil, nil
	}
	ids, next, err := w.list(ctx, searches[w.At])
	if err != nil {
		return nil, err
	}
	for _, found := range after(ids, w.After) {
		if len(limits) >= room {
			return limits, nil // the next call lists the rest again
		}
		w.After = found.digest[:]
		l, rule, ok := w.subject.Log(ctx, found.id)
		if !ok {
			continue
		}
		w.see(rule)
		if w.subject.matches(l.Rule) {
			limits = append(limits, l)
		}
	}
	w.List, w.After = next, nil
	if next == "" {
		w.At++
	}
	return limits, nil
}

// list calls the store's list. If the store fails, it lists the logs of this process from the
// beginning, if there are any.
func (w *walk) list(ctx context.Context, m inspect.Match) (ids []window.LogID, next string, err error) {
	if !w.Local {
		within, cancel := context.WithTimeout(ctx, storeWait)
		defer cancel()
		ids, next, err = w.insight.opts.Inspector.List(within, m, w.List)
		switch {
		case err == nil:
			return ids, next, nil
		case ctx.Err() != nil:
			return nil, "", ctx.Err()
		case errors.Is(err, inspect.ErrCursor) && w.List != "":
			return nil, "", errCursor
		}
		w.problem = err
		w.Local, w.List, w.After, w.At = true, "", nil, 0
	}
	if w.problem == nil {
		w.problem = errEarlier
	}
	if w.insight.opts.Local == nil {
		return nil, "", nil
	}
	ids, next, err = w.insight.opts.Local.List(ctx, m, w.List)
	switch {
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	case err != nil:
		return nil, "", nil
	}
	return ids, next, nil
}

// see notes that a log of a rule was found. The number of a limit without a rule is negative.
func (w *walk) see(rule int) {
	if rule < 0 {
		return
	}
	for len(w.Seen) <= rule/8 {
		w.Seen = append(w.Seen, 0)
	}
	w.Seen[rule/8] |= 1 << (rule % 8)
}

func (w *walk) seen(rule int) bool {
	return rule/8 < len(w.Seen) && w.Seen[rule/8]&(1<<(rule%8)) != 0
}

// A listed log is one that a store has listed, with its digest: clients choose the values in names of
// logs, and could make two of them with one hash, of which one would hide the other.
type listed struct {
	digest [16]byte
	id     window.LogID
}

// after returns the logs whose digests are above one, each log once, in the order of their digests.
func after(ids []window.LogID, digest []byte) []listed {
	rest := make([]listed, 0, len(ids))
	var text []byte
	for _, id := range ids {
		text = append(text[:0], byte(id.Policy)|byte(id.Scope)<<4)
		text = append(binary.BigEndian.AppendUint64(text, uint64(id.Window)), id.Key...)
		sum := sha256.Sum256(text)
		if bytes.Compare(sum[:len(listed{}.digest)], digest) > 0 {
			rest = append(rest, listed{[16]byte(sum[:]), id})
		}
	}
	slices.SortFunc(rest, func(a, b listed) int { return bytes.Compare(a.digest[:], b.digest[:]) })
	return slices.CompactFunc(rest, func(a, b listed) bool { return a.digest == b.digest })
}
