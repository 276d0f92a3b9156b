package main
import "testing"
func BenchmarkZZ(b *testing.B){ for b.Loop() { run(root(), []string{"replay","--json","--rules","/tmp/replay-scratch/rules.yaml","--envoy","/tmp/replay-scratch/envoy.yaml","--what-if","none","/tmp/replay-scratch/a.log"}) } }
