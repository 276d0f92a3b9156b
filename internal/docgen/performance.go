package main

import "fmt"

// A figure is one measurement of the page.
type figure struct {
	of, value string
	measured  string // the day
	command   string // prints it again
}

const (
	benchCommand  = "go run ./test/bench -rls bin/rls"
	windowCommand = "go run ./test/windowbench"
)

// figures are what a reader decides by. make bench prints all others. Write the day with a new figure.
var figures = []figure{
	{"memory store, allowed: requests a second; CPU", "3.30 and 0.23 times those of a bare gRPC server", "2026-11-22", benchCommand + " -only store/memory"},
	{"Redis, allowed: requests a second; CPU", "0.95 and 0.76 times", "2026-11-22", benchCommand + " -only store/redis"},
	{"Redis, denied by the memory of the instance: requests a second; CPU", "2.80 and 0.28 times", "2026-11-22", benchCommand + " -only store/redis"},
	{"an API key and its limit in one authorization: requests a second; CPU", "3.07 and 0.25 times", "2026-11-22", benchCommand + " -only one-hop"},
	{"behind Envoy: time added to a request", "0.72 times", "2026-11-26", "make bench"},
	{"Redis, a single caller: time of an answer", "197 µs, 1.27 times a PING and a bare gRPC call together", "2026-11-26", benchCommand + " -only alone"},
	{"CPU of Redis for a decision, limit 100", "5.5 µs, 0.71 times that of a sorted set; 16 in one call: half of that each", "2026-11-26", windowCommand},
	{"memory of Redis for a request in the window, limit 100", "13.4 bytes; a sorted set needs 31.3", "2026-11-26", windowCommand},
	{"the Go library: a decision in memory", "290 ns by address, 550 ns by API key", "2026-11-26", "go test -run '^$' -bench BenchmarkAllow ./pkg/limiter"},
	{"100,000 rules in 50 files: to load; memory at a reload", "2 to 2.5 s of CPU; 390 MiB", "2026-11-22", "go test -run '^$' -bench BenchmarkLoad100k ./internal/config"},
}

const performanceAbove = "Measure on your machine. Only ratios apply to other machines:\n\n" +
	"```sh\nmake bench    # needs Envoy, which make fetches, h2load, redis-server and PostgreSQL\n```\n\n" +
	"These ten figures are medians, on 2 CPUs that server and load shared (go1.26.8, grpc-go 1.85.0,\n" +
	"Redis 7.0.15). The bare gRPC server decides nothing and answers with the same message.\n\n"

// performanceText returns the table of figures.
func performanceText() (string, error) {
	text := performanceAbove + "| what | figure | measured | printed by |\n|---|---|---|---|\n"
	for _, f := range figures {
		if f.of == "" || f.value == "" || f.measured == "" || f.command == "" {
			return "", fmt.Errorf("a figure is not complete: %+v", f)
		}
		text += fmt.Sprintf("| %s | %s | %s | `%s` |\n", f.of, f.value, f.measured, f.command)
	}
	return text, nil
}
