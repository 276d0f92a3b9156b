package calls

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/edge/grpcserver"
	"github.com/slidegate/slidegate/internal/edge/unary"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// measured is a Recorder whose registry and log a test can read.
type measured struct {
	Recorder
	registry *prometheus.Registry
	logs     *observer.ObservedLogs
}

func newMeasured() measured {
	registry := prometheus.NewRegistry()
	core, logs := observer.New(zapcore.DebugLevel)
	return measured{Recorder{Metrics: metrics.New(registry, metrics.Options{}), Log: zap.New(core)}, registry, logs}
}

// seen returns how many calls of /s/M were measured and how long they took, by code.
func (m measured) seen(t *testing.T) map[string]string {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]string)
	for _, f := range families {
		if f.GetName() != "slidegate_rpc_seconds" {
			continue
		}
		for _, series := range f.GetMetric() {
			code, method := series.GetLabel()[0].GetValue(), series.GetLabel()[1].GetValue()
			if h := series.GetHistogram(); h.GetSampleCount() > 0 {
				seen[code] = fmt.Sprintf("%d of %s in %vs", h.GetSampleCount(), method, h.GetSampleSum())
			}
		}
	}
	return seen
}

// An outcome is how a step of a call ends.
type outcome struct {
	takes  time.Duration
	err    error
	panics bool
}

func (o outcome) apply() error {
	time.Sleep(o.takes)
	if o.panics {
		panic("a secret")
	}
	return o.err
}

// TestCallsAreMeasured ends calls in every way. They take each of the three paths: the
// interceptor, a handler that does not wait, and one that waits. Answer and metrics do not
// depend on the path.
func TestCallsAreMeasured(t *testing.T) {
	full := status.Error(codes.ResourceExhausted, "full")
	for _, tt := range []struct {
		name    string
		outcome outcome
		code    codes.Code
		panics  float64
	}{
		{"answered", outcome{takes: time.Second}, codes.OK, 0},
		{"refused", outcome{takes: time.Second, err: full}, codes.ResourceExhausted, 0},
		{"an error without a code", outcome{takes: time.Second, err: errors.New("lost")}, codes.Unknown, 0},
		{"panics", outcome{takes: time.Second, panics: true}, codes.Internal, 1},
	} {
		for path, call := range map[string]func(Recorder) ([]byte, error){
			"interceptor": func(c Recorder) ([]byte, error) {
				out, err := c.Intercept(t.Context(), "in", &grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(_ context.Context, in any) (any, error) {
					return []byte(in.(string) + " out"), tt.outcome.apply()
				})
				answer, _ := out.([]byte)
				return answer, err
			},
			"without waiting": func(c Recorder) ([]byte, error) {
				f := c.Wrap("/s/M", func(_ context.Context, _ bool, call *unary.Call, answer []byte) ([]byte, bool, error) {
					return append(append(answer, call.Request...), " out"...), true, tt.outcome.apply()
				})
				answer, decided, err := f(t.Context(), false, &unary.Call{Request: "in", Begin: time.Now()}, nil)
				if err == nil && !decided {
					t.Error("the call is undecided")
				}
				return answer, err
			},
			"waiting": func(c Recorder) ([]byte, error) {
				f := c.Wrap("/s/M", func(_ context.Context, wait bool, call *unary.Call, answer []byte) ([]byte, bool, error) {
					if !wait {
						return answer, false, nil
					}
					return append(answer, call.Request+" out"...), true, tt.outcome.apply()
				})
				call := &unary.Call{Request: "in", Begin: time.Now()}
				if _, decided, err := f(t.Context(), false, call, nil); decided || err != nil {
					t.Fatalf("without waiting: decided %v, %v, want it undecided", decided, err)
				}
				answer, _, err := f(t.Context(), true, call, nil)
				return answer, err
			},
		} {
			t.Run(tt.name+"/"+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMeasured()
					answer, err := call(m.Recorder)
					if status.Code(err) != tt.code || err == nil && string(answer) != "in out" {
						t.Errorf("got %q, %v, want the answer or %v", answer, err, tt.code)
					}
					if diff := cmp.Diff(map[string]string{tt.code.String(): "1 of /s/M in 1s"}, m.seen(t)); diff != "" {
						t.Errorf("measured (-want +got):\n%s", diff)
					}
					if got := counter(t, m.registry, "slidegate_panics_total"); got != tt.panics || m.logs.Len() != int(tt.panics) {
						t.Errorf("%v panics counted, %d logged, want %v", got, m.logs.Len(), tt.panics)
					}
				})
			})
		}
	}
}

// TestWaitingCallsAreMeasuredFromTheBeginning lets time pass between both calls of a
// handler. The measured time includes it, because the client waits for it too.
func TestWaitingCallsAreMeasuredFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeasured()
		f := m.Wrap("/s/M", func(_ context.Context, wait bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
			if !wait {
				time.Sleep(time.Second)
			} else {
				time.Sleep(4 * time.Second)
			}
			return answer, wait, nil
		})
		call := &unary.Call{Begin: time.Now()}
		_, _, _ = f(t.Context(), false, call, nil)
		time.Sleep(2 * time.Second)
		if got := m.seen(t); len(got) != 0 {
			t.Errorf("measured %v before the call has ended", got)
		}
		if _, _, err := f(t.Context(), true, call, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"OK": "1 of /s/M in 7s"}, m.seen(t)); diff != "" {
			t.Errorf("measured (-want +got):\n%s", diff)
		}
	})
}

// TestAnswersOfPanics panics after a handler has appended half an answer. The answer stays as
// it was before the call.
func TestAnswersOfPanics(t *testing.T) {
	m := newMeasured()
	for name, waits := range map[string]bool{"without waiting": false, "waiting": true} {
		f := m.Wrap("/s/M", func(_ context.Context, wait bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
			if waits && !wait {
				return answer, false, nil
			}
			_ = append(answer, "half"...)
			panic("a secret")
		})
		call := &unary.Call{Begin: time.Now()}
		out, decided, err := f(t.Context(), false, call, []byte("before"))
		if err == nil && !decided {
			out, _, err = f(t.Context(), true, call, []byte("before"))
		}
		if string(out) != "before" || status.Code(err) != codes.Internal {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
}

// TestPanicsLogNoSecrets panics with the request. The log has the position, but not the request.
func TestPanicsLogNoSecrets(t *testing.T) {
	m := newMeasured()
	w := httptest.NewRecorder()
	m.RecoverHTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a secret") })).
		ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("over HTTP: %d, want 500", w.Code)
	}
	_, err := m.Intercept(t.Context(), "a secret", &grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(context.Context, any) (any, error) { panic("a secret") })
	if status.Code(err) != codes.Internal {
		t.Errorf("over gRPC: %v, want INTERNAL", err)
	}
	if got := counter(t, m.registry, "slidegate_panics_total"); got != 2 || m.logs.Len() != 2 {
		t.Errorf("%v panics counted, %d logged, want 2", got, m.logs.Len())
	}
	for _, line := range m.logs.All() {
		if text := fmt.Sprint(line.Message, line.ContextMap()); strings.Contains(text, "a secret") || !strings.Contains(text, "calls_test.go") {
			t.Errorf("the line %s shows what was being handled, or not where", text)
		}
	}
}

func TestHandlersAreMeasuredWithoutAllocations(t *testing.T) {
	m := newMeasured()
	f := m.Wrap("/s/M", func(_ context.Context, _ bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
		return answer, true, nil
	})
	call := &unary.Call{Begin: time.Now()}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = f(t.Context(), false, call, nil) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// TestPanicsEndOnlyTheirCall panics in handlers of both transports. The client gets
// INTERNAL, and its connection goes on to serve calls.
func TestPanicsEndOnlyTheirCall(t *testing.T) {
	for _, tt := range []struct {
		name, transport string
		handler         unary.Handler // nil: only the interceptor runs
	}{
		{"standard", settings.TransportStandard, nil},
		{"unary, interceptor", settings.TransportUnary, nil},
		{"unary, without waiting", settings.TransportUnary, func(context.Context, bool, *unary.Call, []byte) ([]byte, bool, error) { panic("a secret") }},
		{"unary, waiting", settings.TransportUnary, func(_ context.Context, wait bool, _ *unary.Call, answer []byte) ([]byte, bool, error) {
			if !wait {
				return answer, false, nil
			}
			panic("a secret")
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMeasured()
			settings := settings.Default().GRPC
			settings.Transport = tt.transport
			server, _ := grpcserver.New(grpcserver.Options{Settings: settings, Intercept: m.Intercept, Wrap: m.Wrap, Log: m.Log})
			server.RegisterService(&grpc.ServiceDesc{ServiceName: "s", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
				MethodName: "M",
				Handler: func(_ any, ctx context.Context, _ func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
					return intercept(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(context.Context, any) (any, error) { panic("a secret") })
				},
			}}}, nil)
			if tt.handler != nil {
				server.(*unary.Server).Handle("/s/M", m.Wrap("/s/M", tt.handler))
			}
			l := bufconn.Listen(1 << 16)
			go func() { _ = server.Serve(l) }() // until it is stopped
			defer server.Stop()
			var dialed atomic.Int64
			client, err := grpc.NewClient("passthrough:server", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					dialed.Add(1)
					return l.DialContext(ctx)
				}))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for range 3 {
				err := client.Invoke(t.Context(), "/s/M", &healthv1.HealthCheckRequest{}, &healthv1.HealthCheckResponse{})
				if status.Code(err) != codes.Internal || status.Convert(err).Message() != "internal error" {
					t.Errorf("got %v, want INTERNAL", err)
				}
			}
			if _, err := healthv1.NewHealthClient(client).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Errorf("after the panics: %v", err)
			}
			if n := dialed.Load(); n != 1 {
				t.Errorf("the client has connected %d times, want once", n)
			}
			if got := counter(t, m.registry, "slidegate_panics_total"); got != 3 {
				t.Errorf("%v panics counted, want 3", got)
			}
		})
	}
}

func counter(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
