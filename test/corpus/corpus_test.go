package corpus

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/fallback"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/ratelimit"
	"github.com/slidegate/slidegate/internal/operate/metrics"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/memstore"
	"github.com/slidegate/slidegate/test/tree"
)

var update = flag.Bool("update", false, "write the answers into the golden files anew; read the difference before you keep it")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	settingsFile = "settings.yaml"
	dropInFile   = "dropin" // name=value of a drop-in, one a line
	tiersFile    = "tiers.yaml"
	// epoch is what the clock of the store shows at the start of a transcript.
	epoch = 1000 * time.Hour
)

// TestCorpus loads every configuration and replays its transcript.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	// Neither is a promise; they are here so that files cannot get lost.
	const atLeast, transcriptsAtLeast = 70, 60
	transcripts := 0
	for _, file := range files {
		g, err := readGolden(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := g.get("transcript"); ok {
			transcripts++
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			if strings.TrimSpace(g.comment) == "" {
				t.Error("it does not say what it shows")
			}
			before := g.String()
			replay(t, g)
			after := g.String()
			if before == after {
				return
			}
			if *update {
				if err := os.WriteFile(file, []byte(after), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s (-want +got):\n%s", file, cmp.Diff(before, after))
		})
	}
	if len(files) < atLeast || transcripts < transcriptsAtLeast {
		t.Errorf("%d files with %d transcripts, want at least %d with %d", len(files), transcripts, atLeast, transcriptsAtLeast)
	}
}

// replay runs the transcript of g and puts the results into g.
func replay(t *testing.T, g *golden) {
	t.Helper()
	s := &runningService{t: t, golden: g}
	generation, settings, warnings := s.load("")
	if warnings != "" {
		g.set("warnings", warnings)
	} else if _, was := g.get("warnings"); was {
		t.Error("no warnings, want some")
	}
	text, ok := g.get("transcript")
	if !ok {
		return
	}
	s.start(generation, settings)
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, indent): // an answer
			continue
		case line == "", strings.HasPrefix(line, "#"):
			b.WriteString(line + "\n")
		case line == "store down", line == "store up":
			s.down.Store(line == "store down")
			b.WriteString(line + "\n")
		case strings.HasPrefix(line, "load "):
			generation, _, warnings := s.load(strings.TrimPrefix(line, "load "))
			if warnings != "" {
				t.Errorf("%s: warnings:\n%s", line, warnings)
			}
			s.decider.Swap(generation.Rules)
			b.WriteString(line + "\n")
		case strings.HasPrefix(line, "at "):
			b.WriteString(line + "\n" + s.request(line))
		default:
			t.Errorf("no line of a transcript: %q", line)
		}
	}
	g.set("transcript", b.String())
	if _, ok := g.get("metrics"); ok {
		g.set("metrics", s.counted())
	}
}

// runningService is a service that a transcript uses.
type runningService struct {
	t      *testing.T
	golden *golden

	now      atomic.Int64
	down     atomic.Bool
	decider  *decide.Decider
	client   rlsv3.RateLimitServiceClient
	json     http.Handler
	registry *prometheus.Registry
}

// load reads a generation. Its warnings are lines.
func (s *runningService) load(name string) (*config.Generation, settings.Settings, string) {
	t := s.t
	t.Helper()
	dir := t.TempDir()
	rules := filepath.Join(dir, "rules")
	if err := os.Mkdir(rules, 0o700); err != nil {
		t.Fatal(err)
	}
	var settingsPath, tiersPath string
	dropIn := settings.Default().DropIn
	for file, text := range s.golden.files(name) {
		if file == dropInFile {
			for line := range strings.Lines(text) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
				*map[string]*bool{
					"dropin.metadata.request": &dropIn.EchoRequest, "dropin.rules.quota_mode": &dropIn.QuotaMode,
					"dropin.rules.ignore_dot_files": &dropIn.Files.IgnoreDotFiles,
				}[name] = value == "true"
			}
			continue
		}
		path := filepath.Join(rules, file)
		switch file {
		case settingsFile:
			path = filepath.Join(dir, file)
			settingsPath = path
		case tiersFile:
			path = filepath.Join(dir, file)
			tiersPath = path
		}
		tree.Write(t, path, text)
	}
	loaded, _, err := settings.Load(settingsPath, nil, dropIn)
	if err != nil {
		t.Fatal(err)
	}
	loaded.Rules.Path, loaded.Tiers.Path = rules, tiersPath
	if tiersPath == "" {
		loaded.Tiers.Source = settings.TiersNone
	}
	generation, err := config.Load(loaded)
	if err != nil {
		t.Fatalf("it does not load:\n%v", strings.ReplaceAll(err.Error(), dir+"/", ""))
	}
	var b strings.Builder
	for _, w := range generation.Warnings {
		b.WriteString(strings.ReplaceAll(strings.ReplaceAll(w.String(), rules+"/", ""), dir+"/", "") + "\n")
	}
	return generation, loaded, b.String()
}

// start serves a generation until the test ends.
func (s *runningService) start(g *config.Generation, settings settings.Settings) {
	t := s.t
	t.Helper()
	clock := memstore.Options{
		Clock:         func() time.Duration { return epoch + time.Duration(s.now.Load()) },
		SweepInterval: -1,
	}
	store := memstore.New(clock)
	shares, err := fallback.New(fallback.Options{Memory: clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close(); shares.Close() })
	s.registry = prometheus.NewRegistry()
	counters := metrics.New(s.registry, metrics.Options{Version: "corpus", MaxDetailSeries: settings.Metrics.MaxDetailSeries})
	s.decider = decide.NewDecider(g.Rules, decide.Options{
		Store: &breakable{store, &s.down}, Local: shares, Meters: counters,
	})
	render := answer.NewRenderer(settings.Headers.Styles...)
	service := ratelimit.NewService(ratelimit.Options{
		Decider: s.decider, Secrets: g.Secrets, Headers: render, Meters: counters, EchoRequest: settings.DropIn.EchoRequest,
	})
	s.json = http.HandlerFunc(service.ServeJSON)

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.ForceServerCodecV2(adapter.NewCodec()))
	service.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	s.client = rlsv3.NewRateLimitServiceClient(conn)
}

// request sends the request of a line, checks the answer and renders it.
func (s *runningService) request(line string) string {
	s.t.Helper()
	a, err := readAsk(line)
	if err != nil {
		s.t.Errorf("%s: %v", line, err)
		return ""
	}
	if a.at < time.Duration(s.now.Load()) {
		s.t.Errorf("%s: time runs backwards", line)
	}
	s.now.Store(int64(a.at))
	var (
		out   *rlsv3.RateLimitResponse
		extra []string
	)
	for range a.times {
		if a.json {
			out, extra, err = s.askJSON(a.in)
		} else {
			out, err = s.client.ShouldRateLimit(s.t.Context(), a.in)
		}
	}
	if err := a.check(out, err); err != nil {
		s.t.Errorf("%s\n%v in\n%s", line, err, render(out, nil))
	}
	return render(out, err, extra...)
}

// askJSON asks the port for people.
func (s *runningService) askJSON(in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, []string, error) {
	body, err := protojson.Marshal(in)
	if err != nil {
		return nil, nil, err
	}
	w := httptest.NewRecorder()
	s.json.ServeHTTP(w, httptest.NewRequestWithContext(s.t.Context(), http.MethodPost, "/json", bytes.NewReader(body)))
	if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
		return nil, nil, status.Error(codes.Unknown, fmt.Sprintf("HTTP %d %s", w.Code, strings.TrimSpace(w.Body.String())))
	}
	out := new(rlsv3.RateLimitResponse)
	if err := protojson.Unmarshal(w.Body.Bytes(), out); err != nil {
		return nil, nil, err
	}
	extra := []string{fmt.Sprintf("HTTP %d", w.Code)}
	for name, values := range w.Header() {
		extra = append(extra, "HTTP "+name+": "+strings.Join(values, ", "))
	}
	slices.Sort(extra)
	return out, extra, nil
}

// counted returns the counters that are not zero, sorted.
func (s *runningService) counted() string {
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "slidegate_")
		if !ours {
			continue
		}
		for _, m := range f.GetMetric() {
			if m.GetCounter().GetValue() == 0 {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			lines = append(lines, fmt.Sprintf("%s{%s} %v\n", name, strings.Join(labels, " "), m.GetCounter().GetValue()))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// breakable is a store that can be out of reach.
type breakable struct {
	window.Store
	down *atomic.Bool
}

var errDown = errors.New("the store is down")

// Take implements window.Store.
func (b *breakable) Take(ctx context.Context, wait bool, checks []window.Check, decisions []window.Decision) (bool, error) {
	if !wait {
		return false, nil
	}
	if b.down.Load() {
		return true, errDown
	}
	return b.Store.Take(ctx, window.MayWait, checks, decisions)
}
