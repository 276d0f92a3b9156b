package replay

import (
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// describing asks one question, without an allocation.
type describing struct{ one [1]decide.Descriptor }

func (*describing) Wants() []accesslog.Attribute {
	return []accesslog.Attribute{accesslog.Header("tenant")}
}
func (*describing) Unreported() []Unreported { return nil }
func (d *describing) Describe(dst []Question, r *accesslog.Record) []Question {
	if d.one[0].Entries == nil {
		d.one[0] = decide.Descriptor{Entries: descriptors.Descriptor{{Key: "tenant"}}, Cost: 1}
	}
	d.one[0].Entries[0].Value = names[int(r.Line)]
	return append(dst, Question{Domain: "edge", Descriptors: d.one[:]})
}

var names = func() (all []string) {
	for i := range 100_000 {
		all = append(all, fmt.Sprintf("tenant-%05d", i))
	}
	return all
}()

// busy is a source of requests of tenants of which few send many, one each millisecond.
type busy struct {
	left   int
	zipf   *rand.Zipf
	record accesslog.Record
}

func newBusy(n int) *busy {
	random := rand.New(rand.NewPCG(1, 2))
	return &busy{left: n, zipf: rand.NewZipf(random, 1.1, 10, uint64(len(names)-1)), record: accesslog.Record{At: begin, Values: make([]accesslog.Value, 2)}}
}

func (b *busy) Next() (*accesslog.Record, error) {
	if b.left--; b.left < 0 {
		return nil, io.EOF
	}
	b.record.At += time.Millisecond
	b.record.Line = int64(b.zipf.Uint64())
	return &b.record, nil
}

// BenchmarkEngine decides requests under one rule. cpu-ns/op is the time of all processors for one
// request.
func BenchmarkEngine(b *testing.B) {
	for name, o := range map[string]EngineOptions{
		"decide": {},
		"whatif": {WhatIf: func(string) bool { return true }},
	} {
		b.Run(name, func(b *testing.B) {
			o.Rules, o.Describer = rulesOf(b, nil, limited("tenant", per(100, time.Minute))), new(describing)
			e := NewEngine(o)
			defer e.Close()
			b.ReportAllocs()
			before := processorTime()
			if err := e.Run(b.Context(), newBusy(b.N)); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what the process used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
