package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"
)

// A Class is a kind of failure, for metrics and logs. [Classes] has all.
type Class string

// The classes of failures.
const (
	ClassTimeout     Class = "timeout"     // no answer in time; the call may have been charged
	ClassLate        Class = "late"        // the call reached the server after its deadline, which did not charge it
	ClassGone        Class = "gone"        // the caller gave up first
	ClassConnect     Class = "connect"     // no connection: refused, unreachable, no such host, no master known
	ClassClosed      Class = "closed"      // the connection ended before the reply; the call may have been charged
	ClassOpen        Class = "open"        // the breaker is open: the node has failed before
	ClassOverload    Class = "overload"    // too many calls wait for the node; the call was not sent
	ClassReadOnly    Class = "readonly"    // READONLY: a replica
	ClassLoading     Class = "loading"     // LOADING: it reads its data
	ClassMasterDown  Class = "masterdown"  // MASTERDOWN: a replica without its master
	ClassClusterDown Class = "clusterdown" // CLUSTERDOWN: no server has the slot
	ClassMoved       Class = "moved"       // MOVED, ASK or TRYAGAIN to the end: the slot is moving
	ClassMemory      Class = "oom"         // OOM: maxmemory is reached and nothing may be evicted
	ClassReplicas    Class = "noreplicas"  // NOREPLICAS: min-replicas-to-write
	ClassDisk        Class = "misconf"     // MISCONF: it cannot save and refuses writes
	ClassPermission  Class = "noperm"      // NOPERM: the user may not do what the script does
	ClassAuth        Class = "auth"        // NOAUTH, WRONGPASS: wrong or missing credentials
	ClassClients     Class = "maxclients"  // the server has its maximum of clients
	ClassBusy        Class = "busy"        // BUSY: it runs another client's script
	ClassPeriod      Class = "period"      // the periods of a calendar contradict the server's clock
	ClassReply       Class = "reply"       // the reply is not what the script answers
	ClassOther       Class = "other"
)

// Classes are all of them.
var Classes = []Class{
	ClassTimeout, ClassLate, ClassGone, ClassConnect, ClassClosed, ClassOpen, ClassOverload, ClassReadOnly,
	ClassLoading, ClassMasterDown, ClassClusterDown, ClassMoved, ClassMemory, ClassReplicas, ClassDisk, ClassPermission,
	ClassAuth, ClassClients, ClassBusy, ClassPeriod, ClassReply, ClassOther,
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

// ClassOf returns the class of an error of a [Store], or "" of another error.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return ""
}

// prefixes are the beginnings of a server's errors.
var prefixes = []struct {
	text  string
	class Class
}{
	{"READONLY", ClassReadOnly},
	{"LOADING", ClassLoading},
	{"MASTERDOWN", ClassMasterDown},
	{"CLUSTERDOWN", ClassClusterDown},
	{"MOVED", ClassMoved},
	{"ASK", ClassMoved},
	{"TRYAGAIN", ClassMoved},
	{"OOM", ClassMemory},
	{"NOREPLICAS", ClassReplicas},
	{"MISCONF", ClassDisk},
	{"NOPERM", ClassPermission},
	{"NOAUTH", ClassAuth},
	{"WRONGPASS", ClassAuth},
	{"BUSY", ClassBusy},
	{"UNKILLABLE", ClassBusy},
}

// classify returns the class of an error of a client.
func classify(err error) Class {
	var server redis.Error
	if errors.As(err, &server) {
		text := strings.TrimPrefix(server.Error(), "ERR ")
		for _, p := range prefixes {
			// Redis 6.2 puts the error of a command in a script after its place, as -OOM.
			if redis.HasErrorPrefix(err, p.text) || strings.HasPrefix(text, p.text+" ") || strings.Contains(text, ": -"+p.text+" ") {
				return p.class
			}
		}
		switch {
		case strings.HasPrefix(text, "max number of clients"):
			return ClassClients
		case strings.HasPrefix(text, "invalid password"), strings.HasPrefix(text, "AUTH "), strings.HasPrefix(text, "Client sent AUTH"):
			return ClassAuth
		// For a command in a script: the texts of Redis up to 7.0, and of later ones and Valkey.
		case strings.HasPrefix(text, "ACL failure in script"), strings.Contains(text, "The user executing the script can't "):
			return ClassPermission
		}
		return ClassOther
	}
	var dial *net.OpError
	var dns *net.DNSError
	switch {
	case errors.Is(err, gobreaker.ErrOpenState), errors.Is(err, gobreaker.ErrTooManyRequests):
		return ClassOpen
	case errors.As(err, &dns), errors.As(err, &dial) && dial.Op == "dial":
		return ClassConnect
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), isTimeout(err):
		return ClassTimeout
	case errors.Is(err, context.Canceled):
		return ClassGone
	case errors.Is(err, syscall.ECONNREFUSED):
		return ClassConnect
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ClassClosed
	}
	return ClassOther
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// ofTheNode reports whether a failure means that the node decides nothing. Otherwise only
// one call could not be decided.
func (c Class) ofTheNode() bool {
	switch c {
	case ClassMemory, ClassReplicas, ClassDisk: // it still answers denials
		return false
	case ClassLate, ClassGone, ClassOverload, ClassMoved, ClassPeriod, ClassReply:
		return false
	}
	return true
}

// refusesWrites reports whether the server has refused the first write of a script. It has
// changed nothing then, and can still decide requests that write nothing.
func (c Class) refusesWrites() bool {
	return c == ClassMemory || c == ClassReplicas || c == ClassDisk
}
