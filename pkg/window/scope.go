package window

import (
	"context"
	"errors"
	"strings"
)

// A Scope is the number of the store in which a log is kept: that of the region, which is zero,
// or another one that several regions share. A rule has one scope at a time. But a reload can
// give it another one, so two logs of one key in two scopes are two logs. A store of one scope in
// Redis ignores the number, and a store in memory has the logs of all scopes.
type Scope uint8

// MaxScope is the largest scope, and the number of scopes besides [Region].
const MaxScope = 15

// Region is the scope of the store of the region.
const Region Scope = 0

// A PartError says that some scopes of a group could not decide. The others have decided and
// charged their checks as if the missing ones had room. Their decisions are filled in; those of
// the missing scopes are undefined.
//
// The caller decides for the missing scopes. If the group is denied, it calls GiveBack.
// Otherwise the charges stay.
type PartError struct {
	// Failed has why each scope has not decided, by its number. Nil: it has decided, or the group
	// has no check of the scope.
	Failed [MaxScope + 1]error
	// Undo is what GiveBack calls. Nil: nothing is to be taken back.
	Undo func(context.Context)
}

// Error implements error.
func (e *PartError) Error() string {
	var texts []string
	for _, err := range e.Unwrap() {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the errors of the scopes.
func (e *PartError) Unwrap() (errs []error) {
	for _, err := range e.Failed {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// GiveBack takes back what the decided checks of the group have charged, and updates their
// decisions. It waits for that as long as ctx allows. A second call does nothing. It is not safe
// for concurrent use.
func (e *PartError) GiveBack(ctx context.Context) {
	if undo := e.Undo; undo != nil {
		e.Undo = nil
		undo(ctx)
	}
}

// FailedIn returns why a scope has not decided a group, from the error of [Store.Take]. It is nil
// if the scope has decided. An error that is no [PartError] is that of every scope.
func FailedIn(err error, s Scope) error {
	if part, ok := errors.AsType[*PartError](err); ok {
		return part.Failed[s]
	}
	return err
}

// GiveBack calls [PartError.GiveBack] if err is a PartError.
func GiveBack(ctx context.Context, err error) {
	if part, ok := errors.AsType[*PartError](err); ok {
		part.GiveBack(ctx)
	}
}

// OneScope reports whether all checks have the scope of the first.
func OneScope(checks []Check) bool {
	for i := range checks {
		if checks[i].Scope != checks[0].Scope {
			return false
		}
	}
	return true
}
