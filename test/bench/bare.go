package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/config"
)

// streamWorkers is as many as the service has; see internal/daemon.
const streamWorkers = 64

// bareService answers every request with the same message.
type bareService struct {
	rlsv3.UnimplementedRateLimitServiceServer
	answer *rlsv3.RateLimitResponse
}

func (s bareService) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return s.answer, nil
}

// serveBare is the bare server: it answers with the message in a file until ctx
// ends or whoever started it is gone. Its first line of output says where it
// listens, first for gRPC and then for /metrics.
func serveBare(ctx context.Context, file string, out io.Writer) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	answer := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(data, answer); err != nil {
		return err
	}
	calls, err := net.Listen("tcp", anyPort)
	if err != nil {
		return err
	}
	pages, err := net.Listen("tcp", anyPort)
	if err != nil {
		return err
	}
	// The same options as the service has: what is compared is what it does with a
	// call, not how gRPC is set up.
	s := config.Default().GRPC
	server := grpc.NewServer(
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(s.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(s.MaxConcurrentStreams)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: s.KeepaliveMinTime, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: s.MaxConnectionAge}),
	)
	rlsv3.RegisterRateLimitServiceServer(server, bareService{answer: answer})

	// CPU time is read in the same way as that of the service.
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics := &http.Server{Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}), ReadHeaderTimeout: time.Second}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the parent
		cancel(nil)
	}()
	go func() { cancel(server.Serve(calls)) }()
	go func() { cancel(metrics.Serve(pages)) }()
	fmt.Fprintln(out, calls.Addr(), pages.Addr())
	<-ctx.Done()
	server.Stop()
	_ = metrics.Close()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// startBare starts this program as a bare server that answers with the message
// in file. Calling stop ends it.
func startBare(ctx context.Context, file string) (t target, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return t, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-bare", file)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return t, nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return t, nil, err
	}
	if err := cmd.Start(); err != nil {
		return t, nil, err
	}
	stop = func() {
		_ = stdin.Close() // asks it to end
		_ = cmd.Wait()    // how it ends is of no interest
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	addresses := strings.Fields(line)
	if err != nil || len(addresses) != 2 {
		stop()
		return t, nil, fmt.Errorf("the bare server did not start: %q, %w", line, err)
	}
	return target{name: "bare", grpc: addresses[0], metrics: "http://" + addresses[1] + "/metrics"}, stop, nil
}
