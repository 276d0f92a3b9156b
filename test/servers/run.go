package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"
)

// RunRedis starts a Redis without a test, of whatever binary, on a free port and waits until it answers.
// stop ends it and returns when it is gone.
func RunRedis(ctx context.Context, binary string) (address string, stop func(), err error) {
	// Redis cannot be asked which port it took, so a free one is found first.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address = l.Addr().String()
	if err := l.Close(); err != nil {
		return "", nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", dir)
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(err, os.Remove(dir))
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ends is of no interest, only that it has
		close(exited)
	}()
	stop = func() {
		// Errors: it has ended already; what is left is an empty folder.
		_ = cmd.Process.Kill()
		<-exited
		_ = os.RemoveAll(dir)
	}

	client := redis.NewClient(&redis.Options{Addr: address, MaxRetries: -1})
	defer func() { _ = client.Close() }() // nothing was written
	deadline := time.After(10 * time.Second)
	for {
		if err = client.Ping(ctx).Err(); err == nil {
			return address, stop, nil
		}
		select {
		case <-exited:
			stop()
			return "", nil, fmt.Errorf("%s ended by itself", binary)
		case <-deadline:
			stop()
			return "", nil, fmt.Errorf("%s does not answer: %w", binary, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
