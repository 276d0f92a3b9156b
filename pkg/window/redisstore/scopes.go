package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
)

// Scopes decides requests whose limits are in one or several stores. Create it with NewScopes; its
// methods are safe for concurrent use.
//
// A request with one scope goes to that store as usual. Otherwise every check is charged by
// itself, in all stores at once, with one call to each server. If a check denies the request, what
// the others have charged is taken back, as on several slots of a cluster. Refunds, and checks of
// mode Always, take a round trip before that of the other checks. A check of requests in flight on
// a cluster cannot be in a group with a check of another scope.
//
// Each store has its own timeout, and a request waits for the stores that it meets alone. If some
// of them do not decide, the error is a [window.PartError].
type Scopes struct {
	names  []string
	stores []*Store
	holds  [window.MaxScope + 1]atomic.Bool
}

var (
	_ window.Store      = (*Scopes)(nil)
	_ window.Releaser   = (*Scopes)(nil)
	_ inspect.Inspector = (*Scopes)(nil)
)

// NewScopes returns the store of one or several scopes. stores has them by their numbers, and names what
// errors call them: at most [window.MaxScope] besides [window.Region]. The caller closes the
// stores.
func NewScopes(names []string, stores []*Store) *Scopes {
	s := &Scopes{names: names, stores: stores}
	s.holds[window.Region].Store(true)
	return s
}

// Holds says that streams may hold something in the store of a scope. [Scopes.End] reports ends to
// it from then on, and always to that of [window.Region].
func (s *Scopes) Holds(scope window.Scope) { s.holds[scope].Store(true) }

// Close implements [window.Store]. It closes all stores.
func (s *Scopes) Close() error {
	var errs []error
	for _, one := range s.stores {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// named adds the name of a scope to an error, if there are several.
func (s *Scopes) named(scope window.Scope, err error) error {
	if err == nil || len(s.stores) == 1 {
		return err
	}
	return fmt.Errorf("scope %s: %w", s.names[scope], err)
}

// Take implements [window.Store].
func (s *Scopes) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (decided bool, err error) {
	p, ok := window.PauserFor(ctx, wait)
	if !ok {
		return false, nil
	}
	one := window.OneScope(checks)
	for i := range checks {
		if int(checks[i].Scope) >= len(s.stores) {
			return true, fmt.Errorf("redisstore: %w: check %d has the scope %d, and there are %d", window.ErrBadCheck, i, checks[i].Scope, len(s.stores))
		}
		if checks[i].Limit.Policy == window.InFlight && s.stores[checks[i].Scope].cluster != nil && !one {
			return true, fmt.Errorf("redisstore: %w: check %d is of requests in flight on the cluster of the scope %s, with a check of another scope", window.ErrBadCheck, i, s.names[checks[i].Scope])
		}
	}
	if one {
		scope := window.Region
		if len(checks) > 0 {
			scope = checks[0].Scope
		}
		decided, err = s.stores[scope].Take(ctx, wait, checks, decisions)
		return decided, s.named(scope, err)
	}
	if p != nil {
		return false, nil
	}
	if err := window.Validate(checks, decisions); err != nil {
		return true, fmt.Errorf("redisstore: %w", err)
	}
	return true, s.takeMixed(ctx, checks, decisions)
}

// takeMixed decides a request of several scopes.
func (s *Scopes) takeMixed(ctx context.Context, checks []window.Check, decisions []window.Decision) error {
	var (
		of           [window.MaxScope + 1]*participant
		participants []*participant
		part         window.PartError
	)
	if err := ctx.Err(); err != nil {
		return s.stores[checks[0].Scope].count(&failure.Error{Class: failure.Gone, Err: err})
	}
	for i := range checks {
		scope := checks[i].Scope
		if of[scope] != nil {
			continue
		}
		store := s.stores[scope]
		one := &participant{store: store, ctx: ctx}
		of[scope] = one
		one.deadline, _ = store.deadline(ctx)
		participants = append(participants, one)
	}
	p := newMultiSlotCall(checks, decisions, func(c *window.Check) *participant { return of[c.Scope] })
	p.decide(ctx, participants)
	fails := false
	for scope, one := range of {
		if one == nil || one.err == nil {
			continue
		}
		fails = true
		part.Failed[scope] = s.named(window.Scope(scope), one.store.count(one.err))
	}
	if !fails {
		return nil
	}
	if !p.denied {
		part.Undo = p.giveBack
	}
	return &part
}

// End implements [window.Releaser]. It reports the end, at once, to all scopes in which streams
// may hold something: see [Scopes.Holds], and to those of its costs. If one of them fails, the others get it all the same.
func (s *Scopes) End(ctx context.Context, end window.Ending) (settled window.Settled, err error) {
	if len(s.stores) == 1 {
		return s.stores[0].End(ctx, end)
	}
	var (
		mu   sync.Mutex
		errs []error
		all  sync.WaitGroup
	)
	for i, one := range s.stores {
		here, numbers := end, []int(nil)
		here.Costs = nil
		for j := range end.Costs {
			if end.Costs[j].Scope == window.Scope(i) {
				here.Costs, numbers = append(here.Costs, end.Costs[j]), append(numbers, j)
			}
		}
		if !s.holds[i].Load() && len(numbers) == 0 {
			continue
		}
		all.Go(func() {
			was, err := one.End(ctx, here)
			mu.Lock()
			defer mu.Unlock()
			settled.Released = settled.Released || was.Released
			for _, l := range was.Logs {
				if l.Log.Scope = window.Scope(i); l.Cost >= 0 {
					l.Cost = numbers[l.Cost]
				}
				settled.Logs = append(settled.Logs, l)
			}
			errs = append(errs, s.named(window.Scope(i), err))
		})
	}
	all.Wait()
	return settled, errors.Join(errs...)
}

// Reserve is [Store.Reserve] of the check's scope.
func (s *Scopes) Reserve(ctx context.Context, c window.Check, ahead time.Duration) (window.Decision, window.Reservation, error) {
	d, r, err := s.stores[c.Scope].Reserve(ctx, c, ahead)
	r.Scope = c.Scope
	return d, r, s.named(c.Scope, err)
}

// Return is [Store.Return] of the reservation's scope.
func (s *Scopes) Return(ctx context.Context, r window.Reservation, cost uint64) (taken uint64, err error) {
	taken, err = s.stores[r.Scope].Return(ctx, r, cost)
	return taken, s.named(r.Scope, err)
}

// Read implements [inspect.Inspector].
func (s *Scopes) Read(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return s.keep(ids, func(one *Store, scopeIDs []window.LogID) ([]inspect.Reading, error) { return one.Read(ctx, scopeIDs) })
}

// Remove implements [inspect.Inspector].
func (s *Scopes) Remove(ctx context.Context, ids []window.LogID) ([]inspect.Reading, error) {
	return s.keep(ids, func(one *Store, scopeIDs []window.LogID) ([]inspect.Reading, error) { return one.Remove(ctx, scopeIDs) })
}

// keep asks each scope for its logs, all at once, and returns the readings in the order of ids.
// The error names every scope that could not be asked.
func (s *Scopes) keep(ids []window.LogID, ask func(*Store, []window.LogID) ([]inspect.Reading, error)) ([]inspect.Reading, error) {
	var (
		scopeIDs [window.MaxScope + 1][]window.LogID
		readings [window.MaxScope + 1][]inspect.Reading
		errs     [window.MaxScope + 1]error
		all      sync.WaitGroup
	)
	for _, id := range ids {
		scopeIDs[id.Scope] = append(scopeIDs[id.Scope], id)
	}
	for i, one := range s.stores {
		if len(scopeIDs[i]) > 0 {
			all.Go(func() {
				got, err := ask(one, scopeIDs[i])
				readings[i], errs[i] = got, s.named(window.Scope(i), err)
			})
		}
	}
	all.Wait()
	merged := make([]inspect.Reading, 0, len(ids))
	for _, id := range ids {
		// The readings of a scope are in the order of its ids, and some may be missing.
		if rest := readings[id.Scope]; len(rest) > 0 && rest[0].ID == id {
			merged, readings[id.Scope] = append(merged, rest[0]), rest[1:]
		}
	}
	return merged, errors.Join(errs[:]...)
}

// List implements [inspect.Inspector] for one scope after the other. If one cannot be asked, the list
// ends with its error.
func (s *Scopes) List(ctx context.Context, m inspect.Match, cursor string) (ids []window.LogID, next string, err error) {
	scope := 0
	if number, inner, ok := strings.Cut(cursor, scopeMark); ok {
		scope, err = strconv.Atoi(number)
		cursor = inner
		if err != nil || scope < 0 || scope >= len(s.stores) {
			return nil, "", fmt.Errorf("redisstore: %w", inspect.ErrCursor)
		}
	} else if cursor != "" {
		return nil, "", fmt.Errorf("redisstore: %w", inspect.ErrCursor)
	}
	ids, next, err = s.stores[scope].List(ctx, m, cursor)
	if err != nil {
		return nil, "", s.named(window.Scope(scope), err)
	}
	for i := range ids {
		ids[i].Scope = window.Scope(scope)
	}
	if next == "" {
		scope++
	}
	if scope == len(s.stores) {
		return ids, "", nil
	}
	return ids, strconv.Itoa(scope) + scopeMark + next, nil
}

// scopeMark ends the number of a scope in a cursor.
const scopeMark = "|"
