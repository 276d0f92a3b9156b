// Package failure has why a store in Redis could not decide: the classes of its errors ([Class]),
// such as a timeout or a refused write. [Classify] finds the class of an error of go-redis, and
// [Of] that of an error of the store.
package failure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// A Class is a kind of failure, for metrics and logs. [Classes] has all.
type Class string

// The classes of failures.
const (
	Timeout     Class = "timeout"     // no answer in time; the call may have been charged
	Late        Class = "late"        // the call reached the server after its deadline, which did not charge it
	Gone        Class = "gone"        // the caller gave up first
	Connect     Class = "connect"     // no connection: refused, unreachable, no such host, no master known
	Closed      Class = "closed"      // the connection ended before the reply; the call may have been charged
	Open        Class = "open"        // the breaker is open: the node has failed before
	Overload    Class = "overload"    // too many calls wait for the node; the call was not sent
	ReadOnly    Class = "readonly"    // READONLY: a replica
	Loading     Class = "loading"     // LOADING: it reads its data
	MasterDown  Class = "masterdown"  // MASTERDOWN: a replica without its master
	ClusterDown Class = "clusterdown" // CLUSTERDOWN: no server has the slot
	Moved       Class = "moved"       // MOVED, ASK or TRYAGAIN to the end: the slot is moving
	Memory      Class = "oom"         // OOM: maxmemory is reached and nothing may be evicted
	Replicas    Class = "noreplicas"  // NOREPLICAS: min-replicas-to-write
	Disk        Class = "misconf"     // MISCONF: it cannot save and refuses writes
	Permission  Class = "noperm"      // NOPERM: the user may not do what the script does
	Auth        Class = "auth"        // NOAUTH, WRONGPASS: wrong or missing credentials
	Clients     Class = "maxclients"  // the server has its maximum of clients
	Busy        Class = "busy"        // BUSY: it runs another client's script
	Period      Class = "period"      // the periods of a calendar contradict the server's clock
	Reply       Class = "reply"       // the reply is not what the script answers
	Other       Class = "other"
)

// Classes are all of them.
var Classes = []Class{
	Timeout, Late, Gone, Connect, Closed, Open, Overload, ReadOnly,
	Loading, MasterDown, ClusterDown, Moved, Memory, Replicas, Disk, Permission,
	Auth, Clients, Busy, Period, Reply, Other,
}

// An Error says why a store could not decide. Its text holds no key.
type Error struct {
	Class Class
	Err   error
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("redisstore: %s: %v", e.Class, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Uncharged reports whether the call has certainly changed nothing.
func (e *Error) Uncharged() bool {
	switch e.Class {
	case Timeout, Gone, Closed, Reply, Other:
		return false
	default:
		return true
	}
}

// Of returns the class of an error of a [redisstore.Store], or "" of another error.
func Of(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return ""
}

// prefixes are the beginnings of a server's errors.
var prefixes = []struct {
	text  string
	class Class
}{
	{"READONLY", ReadOnly},
	{"LOADING", Loading},
	{"MASTERDOWN", MasterDown},
	{"CLUSTERDOWN", ClusterDown},
	{"MOVED", Moved},
	{"ASK", Moved},
	{"TRYAGAIN", Moved},
	{"OOM", Memory},
	{"NOREPLICAS", Replicas},
	{"MISCONF", Disk},
	{"NOPERM", Permission},
	{"NOAUTH", Auth},
	{"WRONGPASS", Auth},
	{"BUSY", Busy},
	{"UNKILLABLE", Busy},
}

// Classify returns the class of an error of a client.
func Classify(err error) Class {
	if server, ok := errors.AsType[redis.Error](err); ok {
		text := strings.TrimPrefix(server.Error(), "ERR ")
		for _, p := range prefixes {
			// Redis 6.2 puts the error of a command in a script after its position, as -OOM.
			if redis.HasErrorPrefix(err, p.text) || strings.HasPrefix(text, p.text+" ") || strings.Contains(text, ": -"+p.text+" ") {
				return p.class
			}
		}
		switch {
		case strings.HasPrefix(text, "max number of clients"):
			return Clients
		case strings.HasPrefix(text, "invalid password"), strings.HasPrefix(text, "AUTH "), strings.HasPrefix(text, "Client sent AUTH"):
			return Auth
		// For a command in a script: the texts of Redis up to 7.0, and of later ones and Valkey.
		case strings.HasPrefix(text, "ACL failure in script"), strings.Contains(text, "The user executing the script can't "):
			return Permission
		}
		return Other
	}
	var dial *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return Open
	case errors.As(err, &dns), errors.As(err, &dial) && dial.Op == "dial":
		return Connect
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), isTimeout(err):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Gone
	case errors.Is(err, syscall.ECONNREFUSED):
		return Connect
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Closed
	}
	return Other
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// OfNode reports whether a failure means that the node decides nothing. Otherwise only
// one call could not be decided.
func (c Class) OfNode() bool {
	switch c {
	case Memory, Replicas, Disk: // it still answers denials
		return false
	case Late, Gone, Overload, Moved, Period, Reply:
		return false
	}
	return true
}

// RefusesWrites reports whether the server has refused the first write of a script. It has
// changed nothing then, and can still decide requests that write nothing.
func (c Class) RefusesWrites() bool {
	return c == Memory || c == Replicas || c == Disk
}

// Explain adds the context's error to an error of the client if the context has ended. A
// socket has the deadline of the context and may notice it first. With it, the race
// between the two does not change how the error is classified.
func Explain(ctx context.Context, err error) error {
	deadline, ok := ctx.Deadline()
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	case ok && !time.Now().Before(deadline):
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}
