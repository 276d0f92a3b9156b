package adaptertest

import (
	"math"
	"reflect"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/slidegate/slidegate/internal/core/reuse/reusetest"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/unary"
)

// Pool takes calls out of a pool. None may be there twice or contain a part of a request,
// also behind the ends of its slices. C is a pointer.
func Pool[C adapter.Call](t *testing.T, get func() C) {
	t.Helper()
	seen := make(map[any]bool)
	for range 8 {
		c := get()
		if seen[c] {
			t.Fatal("the pool has a call twice")
		}
		seen[c] = true
		reusetest.NothingIn(t, "call", reflect.ValueOf(c).Elem())
	}
}

// Allocations returns how often Handle allocates for a request that is decided without
// waiting. It calls before ahead of each request.
func Allocations(t testing.TB, s Service, request []byte, before func()) float64 {
	t.Helper()
	call, out, least := new(unary.Call), make([]byte, 0, 4096), math.Inf(1)
	// With the race detector a pool loses some of its items.
	for range 50 {
		least = min(least, testing.AllocsPerRun(1, func() {
			before()
			*call = unary.Call{Request: string(request)}
			if _, decided, err := s.Handle(t.Context(), false, call, out); err != nil || !decided {
				t.Fatalf("decided %t, %v", decided, err)
			}
		}))
	}
	return least
}

// BenchmarkUnary measures from the bytes of a request to the bytes of its answer, as
// package unary calls Handle. It calls before ahead of each request.
func BenchmarkUnary(b *testing.B, s Service, request []byte, before func()) {
	b.Helper()
	call, out := new(unary.Call), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		before()
		*call = unary.Call{Request: string(request)}
		answer, decided, err := s.Handle(b.Context(), false, call, out[:0])
		if err != nil || !decided {
			b.Fatalf("decided %t, %v", decided, err)
		}
		out = answer
	}
}

// BenchmarkStandard measures the same through the handler and the codec of grpc-go.
func BenchmarkStandard(b *testing.B, s Service, request []byte, before func()) {
	b.Helper()
	codec, handle := adapter.NewCodec(), handler(s)
	data := mem.BufferSlice{mem.SliceBuffer(request)}
	decode := func(m any) error { return codec.Unmarshal(data, m) }
	b.ReportAllocs()
	for b.Loop() {
		before()
		out, err := handle(nil, b.Context(), decode, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := codec.Marshal(out); err != nil {
			b.Fatal(err)
		}
	}
}
