package window_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// TestScopes: logs of two scopes are two logs, and the error of a group says which scopes failed.
func TestScopes(t *testing.T) {
	region := window.Check{Key: "k", Limit: window.Limit{Hits: 3, Window: time.Minute}, Cost: 1}
	global := region
	global.Scope = 1
	both := []window.Check{region, global}
	if _, answer := window.Fold(both); answer != nil || region.Log() == global.Log() {
		t.Errorf("checks of two scopes are folded as %v", answer)
	}
	if window.OneScope(both) || !window.OneScope(both[:1]) || !window.OneScope(nil) {
		t.Error("OneScope is wrong")
	}
	global.Scope = window.MaxScope + 1
	if err := window.Validate([]window.Check{global}, make([]window.Decision, 1)); !errors.Is(err, window.ErrBadCheck) {
		t.Errorf("a scope that cannot be: got error %v", err)
	}

	boom, backs := errors.New("boom"), 0
	part := &window.PartError{Undo: func(context.Context) { backs++ }}
	part.Failed[1] = boom
	err := fmt.Errorf("not decided: %w", part)
	if window.FailedIn(err, 0) != nil || !errors.Is(window.FailedIn(err, 1), boom) || !errors.Is(err, boom) || err.Error() != "not decided: boom" {
		t.Errorf("got error %v", err)
	}
	if !errors.Is(window.FailedIn(boom, 7), boom) || window.FailedIn(nil, 0) != nil {
		t.Error("an error that is no PartError is that of every scope")
	}
	window.GiveBack(t.Context(), err)
	window.GiveBack(t.Context(), err)
	window.GiveBack(t.Context(), boom)
	if backs != 1 {
		t.Errorf("the charges were taken back %d times, want once", backs)
	}
}
