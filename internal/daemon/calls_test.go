package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/metrics"
)

// measured is a calls whose registry and log a test can read.
type measured struct {
	calls
	registry *prometheus.Registry
	logs     *observer.ObservedLogs
}

func newMeasured() measured {
	registry := prometheus.NewRegistry()
	core, logs := observer.New(zapcore.DebugLevel)
	return measured{calls{metrics.New(registry, metrics.Options{}), zap.New(core)}, registry, logs}
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

// A way is what may become of a step of a call.
type way struct {
	takes  time.Duration
	err    error
	panics bool
}

func (w way) happen() error {
	time.Sleep(w.takes)
	if w.panics {
		panic("a secret")
	}
	return w.err
}

// TestCallsAreMeasured has calls go every way, over each of the three paths that a
// call may take: an intercepted handler, a prompt, and a prompt with a rest. The
// caller and whoever reads the metrics cannot tell which it was.
func TestCallsAreMeasured(t *testing.T) {
	full := status.Error(codes.ResourceExhausted, "full")
	for _, tt := range []struct {
		name   string
		way    way
		code   codes.Code
		panics float64
	}{
		{"answered", way{takes: time.Second}, codes.OK, 0},
		{"refused", way{takes: time.Second, err: full}, codes.ResourceExhausted, 0},
		{"an error without a code", way{takes: time.Second, err: errors.New("lost")}, codes.Unknown, 0},
		{"panics", way{takes: time.Second, panics: true}, codes.Internal, 1},
	} {
		for path, call := range map[string]func(calls) ([]byte, error){
			"handler": func(c calls) ([]byte, error) {
				out, err := c.intercept(t.Context(), "in", &grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(_ context.Context, in any) (any, error) {
					return []byte(in.(string) + " out"), tt.way.happen()
				})
				answer, _ := out.([]byte)
				return answer, err
			},
			"prompt": func(c calls) ([]byte, error) {
				f := c.intercepted("/s/M", func(request string, answer []byte) ([]byte, func(context.Context, []byte) ([]byte, error), error) {
					return append(append(answer, request...), " out"...), nil, tt.way.happen()
				})
				answer, rest, err := f("in", nil)
				if rest != nil {
					t.Error("a prompt that is done has a rest")
				}
				return answer, err
			},
			"rest": func(c calls) ([]byte, error) {
				f := c.intercepted("/s/M", func(request string, answer []byte) ([]byte, func(context.Context, []byte) ([]byte, error), error) {
					return answer, func(_ context.Context, answer []byte) ([]byte, error) {
						return append(answer, request+" out"...), tt.way.happen()
					}, nil
				})
				_, rest, err := f("in", nil)
				if rest == nil || err != nil {
					t.Fatalf("a prompt that cannot answer: %v, %v, want its rest", rest, err)
				}
				return rest(t.Context(), nil)
			},
		} {
			t.Run(tt.name+"/"+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := newMeasured()
					answer, err := call(m.calls)
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

// TestRestsAreMeasuredFromTheBeginning waits before a call goes on: its caller does,
// too.
func TestRestsAreMeasuredFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMeasured()
		f := m.intercepted("/s/M", func(_ string, answer []byte) ([]byte, func(context.Context, []byte) ([]byte, error), error) {
			time.Sleep(time.Second)
			return answer, func(_ context.Context, answer []byte) ([]byte, error) {
				time.Sleep(4 * time.Second)
				return answer, nil
			}, nil
		})
		_, rest, _ := f("", nil)
		time.Sleep(2 * time.Second)
		if got := m.seen(t); len(got) != 0 {
			t.Errorf("measured %v before the call has ended", got)
		}
		if _, err := rest(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"OK": "1 of /s/M in 7s"}, m.seen(t)); diff != "" {
			t.Errorf("measured (-want +got):\n%s", diff)
		}
	})
}

// TestAnErrorHasNoRest: whoever returns both is answered with the error.
func TestAnErrorHasNoRest(t *testing.T) {
	m := newMeasured()
	f := m.intercepted("/s/M", func(_ string, answer []byte) ([]byte, func(context.Context, []byte) ([]byte, error), error) {
		return answer, func(context.Context, []byte) ([]byte, error) { return nil, nil }, status.Error(codes.Unavailable, "away")
	})
	if _, rest, err := f("", nil); rest != nil || status.Code(err) != codes.Unavailable {
		t.Errorf("a rest: %v, the error %v, want UNAVAILABLE alone", rest != nil, err)
	}
}

// TestAnswersOfPanics begins with what others have written: it is still there.
func TestAnswersOfPanics(t *testing.T) {
	m := newMeasured()
	panics := func(_ context.Context, answer []byte) ([]byte, error) {
		_ = append(answer, "half"...)
		panic("a secret")
	}
	f := m.intercepted("/s/M", func(_ string, answer []byte) ([]byte, func(context.Context, []byte) ([]byte, error), error) {
		out, err := panics(t.Context(), answer)
		return out, nil, err
	})
	out, rest, err := f("", []byte("others'"))
	if string(out) != "others'" || rest != nil || status.Code(err) != codes.Internal {
		t.Errorf("the prompt: %q, a rest: %v, %v", out, rest != nil, err)
	}
	if out, err := m.rest("/s/M", time.Now(), panics)(t.Context(), []byte("others'")); string(out) != "others'" || status.Code(err) != codes.Internal {
		t.Errorf("the rest: %q, %v", out, err)
	}
}

// TestPanicsTellNoSecrets panics everywhere with what was being handled.
func TestPanicsTellNoSecrets(t *testing.T) {
	m := newMeasured()
	w := httptest.NewRecorder()
	m.recoverHTTP(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a secret") })).
		ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/json", nil))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("over HTTP: %d, want 500", w.Code)
	}
	_, err := m.intercept(t.Context(), "a secret", &grpc.UnaryServerInfo{FullMethod: "/s/M"}, func(context.Context, any) (any, error) { panic("a secret") })
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

func TestPromptsAreMeasuredWithoutAllocations(t *testing.T) {
	m := newMeasured()
	f := m.intercepted("/s/M", func(_ string, answer []byte) ([]byte, func(context.Context, []byte) ([]byte, error), error) {
		return answer, nil, nil
	})
	if n := testing.AllocsPerRun(100, func() { _, _, _ = f("", nil) }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
