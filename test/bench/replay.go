package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/test/figures"
)

// replayName is the name of the measurement of rls replay.
const replayName = "replay"

// replayPart is how many more requests a replayed log has than a measurement of calls: a call
// costs some ten times as much.
const replayPart = 20

// replayWays are the measured ways of a replay: what is beside the default options.
var replayWays = [...]struct {
	name string
	args []string
}{
	{"decide", []string{"--what-if", "none"}},
	{"and a table of other limits", nil},
}

// replays has what rls replay needed for one log, by way and round.
type replays struct {
	lines, bytes int64
	rows         [len(replayWays)][]replayed
	// checked is the CPU time of encoding/json to check that each line is JSON, by round.
	checked []time.Duration
}

// A replayed is one run of the command.
type replayed struct {
	wall, cpu time.Duration
	resident  int64 // at most, in bytes
}

const (
	replayRules = `domain: edge
descriptors:
  - key: remote_address
    rate_limit: {name: per-address, unit: minute, requests_per_unit: 100}
`
	replayEnvoy = `static_resources:
  listeners:
  - name: edge
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          route_config:
            name: edge
            virtual_hosts:
            - name: api
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route:
                  cluster: upstream
                  rate_limits: [{actions: [{remote_address: {}}]}]
          http_filters:
          - name: envoy.filters.http.ratelimit
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: edge}
`
)

// measureReplay replays a log of one rule.
func (b *bench) measureReplay(ctx context.Context) (*replays, error) {
	if !b.only.MatchString(replayName) {
		return nil, nil //nolint:nilnil // it was not chosen
	}
	paths := make(map[string]string)
	for name, text := range map[string]string{"rules.yaml": replayRules, "envoy.yaml": replayEnvoy} {
		paths[name] = filepath.Join(b.dir, name)
		if err := os.WriteFile(paths[name], []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	r := &replays{lines: int64(b.requests) * replayPart}
	log := filepath.Join(b.dir, "access.log")
	var err error
	if r.bytes, err = writeAccessLog(log, r.lines); err != nil {
		return nil, err
	}
	for round := range b.rounds {
		checked, err := checkLines(log)
		if err != nil {
			return nil, err
		}
		r.checked = append(r.checked, checked)
		for i, way := range replayWays {
			args := append([]string{"replay", "--json", "--rules", paths["rules.yaml"], "--envoy", paths["envoy.yaml"]}, way.args...)
			one, err := b.replay(ctx, append(args, log), r.lines)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			r.rows[i] = append(r.rows[i], one)
			fmt.Fprintf(b.progress, "round %d  %s %s: %v, %v CPU, %d MB\n", round+1, replayName, way.name, one.wall, one.cpu, one.resident/1e6)
		}
	}
	return r, nil
}

// checkLines lets encoding/json check each line of a file, and returns the CPU time of that.
func checkLines(path string) (time.Duration, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	before, err := processorTime()
	if err != nil {
		return 0, err
	}
	in := bufio.NewScanner(bufio.NewReaderSize(f, 1<<20))
	for in.Scan() {
		if !json.Valid(in.Bytes()) {
			return 0, fmt.Errorf("%s has a line that is no JSON", path)
		}
	}
	after, err := processorTime()
	return after - before, errors.Join(err, in.Err())
}

// processorTime is the CPU time of this process so far.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// replay runs the command once, and checks that it has decided every line.
func (b *bench) replay(ctx context.Context, args []string, lines int64) (r replayed, err error) {
	cmd := exec.CommandContext(ctx, b.rls, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	began := time.Now()
	out, err := cmd.Output()
	if err != nil {
		return r, err
	}
	r.wall = time.Since(began)
	r.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		r.resident = u.Maxrss * 1024
	}
	var got struct{ Requests, Denied, Unlimited int64 }
	if err := json.Unmarshal(out, &got); err != nil {
		return r, err
	}
	if got.Requests != lines || got.Denied == 0 || got.Unlimited != 0 {
		return r, fmt.Errorf("of %d lines, %d were decided, %d denied and %d not limited", lines, got.Requests, got.Denied, got.Unlimited)
	}
	return r, nil
}

// writeAccessLog writes lines as envoy/ratelimit.yaml makes Envoy write them: at 2,000 requests a
// second, of 50,000 addresses of which few send many, in the order of the ends of the requests. It
// returns the length of the file.
func writeAccessLog(path string, lines int64) (size int64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	random := rand.New(rand.NewPCG(1, 2)) // the same log each time
	clients := rand.NewZipf(random, 1.1, 20, 4_999)
	ended := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for i := range lines {
		ended = ended.Add(500 * time.Microsecond)
		took := time.Duration(random.ExpFloat64()*30) * time.Millisecond
		client := clients.Uint64()
		fmt.Fprintf(out, `{"client":"10.%d.%d.%d","degraded":null,"details":"via_upstream","duration_ms":%d,"flags":"-","grpc_status":null,"limit":100,"method":"GET","path":"/items/%d","protocol":"HTTP/2","remaining":%d,"request_id":"%08x-6f2e-4c1b-9f0e-%012x","retry_after":null,"rule":"per-address","shadowed":null,"status":200,"subject":null,"tier":null,"time":"%s","upstream":"10.200.0.7:8080"}`+"\n",
			client>>16, client>>8&255, client&255, took.Milliseconds(), random.IntN(1000), random.IntN(100), uint32(i), i, ended.Add(-took).Format("2006-01-02T15:04:05.000Z"))
	}
	if err := out.Flush(); err != nil {
		return 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// write writes the result as a Markdown table.
func (r *replays) write(w io.Writer) {
	if r == nil {
		return
	}
	fmt.Fprintf(w, "A log of %d lines, %d MB.\n\n", r.lines, r.bytes/1e6)
	figures.Head(w, "| rls replay | seconds | CPU µs a request | requests a second and core | CPU, json.Valid of the lines is 1 (min–max) | resident MB |")
	for i, way := range replayWays {
		column := func(f func(replayed) float64) float64 { return figures.Median(figures.Column(r.rows[i], f)) }
		cpu := column(func(o replayed) float64 { return o.cpu.Seconds() })
		ratios := figures.Ratios(figures.Column(r.rows[i], func(o replayed) float64 { return o.cpu.Seconds() }), figures.Column(r.checked, time.Duration.Seconds))
		fmt.Fprintf(w, "| %s | %.1f | %.2f | %.0f | %s | %.0f |\n", way.name, column(func(o replayed) float64 { return o.wall.Seconds() }),
			1e6*cpu/float64(r.lines), float64(r.lines)/cpu, figures.Spread(ratios, 2), column(func(o replayed) float64 { return float64(o.resident) / 1e6 }))
	}
	fmt.Fprintln(w)
}
