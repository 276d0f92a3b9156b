package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
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

	"github.com/slidegate/slidegate/bench/internal/traffic"
	"github.com/slidegate/slidegate/test/process"
)

// streamWorkers is the setting of the service; see internal/daemon.
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

// register adds the one service that has the method.
func (s bareService) register(server *grpc.Server) {
	if s.method == authv3.Authorization_Check_FullMethodName {
		authv3.RegisterAuthorizationServer(server, s)
	} else {
		rlsv3.RegisterRateLimitServiceServer(server, s)
	}
}

// serveBare is the bare server. what is METHOD=FILE: it answers the method with the
// message in the file, until ctx or its standard input ends. Its first line of output
// has the address for gRPC and the address for /metrics. frames makes it a frame reader.
func serveBare(ctx context.Context, what string, frames bool, out io.Writer) error {
	method, file, _ := strings.Cut(what, "=")
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	answer := traffic.NewAnswer(method)
	if err := proto.Unmarshal(data, answer); err != nil {
		return err
	}
	calls, err := net.Listen("tcp", process.Address(0))
	if err != nil {
		return err
	}
	pages, err := net.Listen("tcp", process.Address(0))
	if err != nil {
		return err
	}
	// The options of the service, so that both servers differ only in what they do with
	// a call.
	server := grpc.NewServer(
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(1<<20),
		grpc.MaxConcurrentStreams(4096),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{}),
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
	go func() {
		if frames {
			cancel(serveFrames(calls, answer))
		} else {
			cancel(server.Serve(calls))
		}
	}()
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
// message in file, or as a frame reader. Calling stop ends it.
func startBare(name, method, file string) (t target, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return t, nil, err
	}
	cmd := exec.Command(self, "-bare", method+"="+file, "-frames="+strconv.FormatBool(name == framesName))
	// The pipe ends with this program, and then the server ends.
	if _, err := cmd.StdinPipe(); err != nil {
		return t, nil, err
	}
	p, err := process.Start(name, cmd)
	if err != nil {
		return t, nil, err
	}
	if err := p.UntilOutput("\n"); err != nil {
		p.Kill()
		return t, nil, err
	}
	if _, err := fmt.Sscan(p.Stdout(), &t.grpc, &t.admin); err != nil {
		p.Kill()
		return t, nil, fmt.Errorf("the bare server printed %q: %w", p.Output(), err)
	}
	t.name, t.admin, t.peer = name, "http://"+t.admin, true
	return t, p.Kill, nil
}
