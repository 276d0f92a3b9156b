package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

const (
	// Attempts bounds how often a start is tried with another port. Servers that
	// cannot choose a port themselves get one that was free a moment ago; another
	// process may take it in between.
	Attempts = 5

	// FirstPort is the lowest port that FreePort returns.
	FirstPort = 11000
	// The ports are below the range that kernels use for outgoing connections, from 32768 on
	// Linux. So a server that was stopped for a while finds its port free.
	lastPort = 21999
)

// FreePort returns a port of the loopback interface that was free a moment ago.
// The ports at the given offsets above it were free too.
func FreePort(offsets ...int) (int, error) {
	var err error
	for range 100 {
		port := FirstPort + rand.IntN(lastPort-FirstPort+1)
		err = TryPort(port)
		for _, offset := range offsets {
			if err == nil {
				err = TryPort(port + offset)
			}
		}
		if err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between %d and %d: %w", FirstPort, lastPort, err)
}

// TryPort returns nil if a port of the loopback interface is free.
func TryPort(port int) error {
	l, err := net.Listen("tcp", Address(port))
	if err != nil {
		return err
	}
	return l.Close()
}

// Address returns host:port of a port of the loopback interface.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// Reach connects to host:port once.
func Reach(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Launch calls start with free ports until one start succeeds, at most Attempts
// times. See FreePort for offsets.
func Launch(start func(port int) error, offsets ...int) error {
	var err error
	for range Attempts {
		var port int
		if port, err = FreePort(offsets...); err != nil {
			return err
		}
		if err = start(port); err == nil {
			return nil
		}
	}
	return err
}
