package main

import (
	"context"
	"fmt"

	"github.com/slidegate/slidegate/bench/internal/metrics"
)

// A reading is what servers report of themselves at one moment.
type reading struct {
	metrics.Page
	redisCPU float64 // seconds of CPU time of Redis
}

// decisions returns how many descriptors were decided with an outcome.
func (r reading) decisions(outcome string) float64 {
	return r.Sum("slidegate_decisions_total", `outcome="`+outcome+`"`)
}

// read reads from a target, and from its Redis if it has one.
func (b *bench) read(ctx context.Context, t target) (r reading, err error) {
	if t.pid != 0 {
		r.CPU, err = metrics.ProcessCPU(t.pid)
	} else {
		r.Page, err = metrics.Read(ctx, t.admin+"/metrics")
	}
	if err != nil {
		return r, err
	}
	if t.redis != nil {
		if r.redisCPU, err = metrics.RedisCPU(ctx, t.redis); err != nil {
			return r, fmt.Errorf("redis: %w", err)
		}
	}
	return r, nil
}
