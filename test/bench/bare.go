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

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/config/settings"
)

// streamWorkers is as many as the service has; see internal/daemon.
const streamWorkers = 64

// bareService answers every request with the same message.
type bareService struct {
	rlsv3.UnimplementedRateLimitServiceServer
	authv3.UnimplementedAuthorizationServer
	method string
	answer proto.Message
}

func (s bareService) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return s.answer.(*rlsv3.RateLimitResponse), nil
}

func (s bareService) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return s.answer.(*authv3.CheckResponse), nil
}

// register adds the service of the method alone: the other has no answer.
func (s bareService) register(server *grpc.Server) {
	if s.method == authv3.Authorization_Check_FullMethodName {
		authv3.RegisterAuthorizationServer(server, s)
	} else {
		rlsv3.RegisterRateLimitServiceServer(server, s)
	}
}

// newAnswer returns an empty answer of a method.
func newAnswer(method string) proto.Message {
	if method == authv3.Authorization_Check_FullMethodName {
		return new(authv3.CheckResponse)
	}
	return new(rlsv3.RateLimitResponse)
}

// serveBare is the bare server: what is METHOD=FILE, and it answers the method with
// the message in the file until ctx ends or whoever started it is gone. Its first line of output says where it
// listens, first for gRPC and then for /metrics.
func serveBare(ctx context.Context, what string, out io.Writer) error {
	method, file, _ := strings.Cut(what, "=")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	answer := newAnswer(method)
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
	s := settings.Default().GRPC
	server := grpc.NewServer(
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(s.MaxMessageBytes),
		grpc.MaxConcurrentStreams(uint32(s.MaxConcurrentStreams)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: s.KeepaliveMinTime, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: s.MaxConnectionAge}),
	)
	bareService{method: method, answer: answer}.register(server)

	// CPU time and allocations are read in the same way as those of the service.
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
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

// startBare starts this program as a bare server that answers a method with the
// message in file. Calling stop ends it.
func startBare(ctx context.Context, method, file string) (t target, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return t, nil, err
	}
	cmd := exec.CommandContext(ctx, self, "-bare", method+"="+file)
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
	return target{name: bareName, grpc: addresses[0], metrics: "http://" + addresses[1] + "/metrics"}, stop, nil
}
