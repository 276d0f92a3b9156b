package accesslog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// manyLines returns lines of about 10 MB, of which each %d is a number and each %s a time.
func manyLines(line func(at time.Time, n int) string) []byte {
	var b bytes.Buffer
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	for n := 0; b.Len() < 10<<20; n++ {
		b.WriteString(line(at.Add(time.Duration(n)*10*time.Millisecond), n))
	}
	return b.Bytes()
}

// BenchmarkRead reads logs from memory: finding lines, parsing them, and giving them in order.
func BenchmarkRead(b *testing.B) {
	logs := []struct {
		name, format string
		line         func(at time.Time, n int) string
	}{
		{"json", "json", func(at time.Time, n int) string {
			return fmt.Sprintf(`{"client":"10.0.%d.%d","degraded":null,"details":"via_upstream","duration_ms":%d,"flags":"-","grpc_status":null,"limit":100,"method":"GET","path":"/search/%d","protocol":"HTTP/1.1","remaining":97,"request_id":"f97a48a4-320f-45ea-8f00-8df8d2cc9563","retry_after":null,"rule":"per-key","shadowed":null,"status":200,"subject":"customer-%d","tier":"gold","time":"%s","upstream":"127.0.0.1:8080"}`+"\n",
				n/256%256, n%256, n%90, n%10, n%1000, at.Format("2006-01-02T15:04:05.000Z"))
		}},
		{"envoy", "envoy", func(at time.Time, n int) string {
			return fmt.Sprintf(`[%s] "GET /search/%d?q=a HTTP/1.1" 200 - 0 1234 %d 12 "10.0.%d.%d" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36" "f97a48a4-320f-45ea-8f00-8df8d2cc9563" "api.example.com" "127.0.0.1:8080"`+"\n",
				at.Format("2006-01-02T15:04:05.000Z"), n%10, n%90, n/256%256, n%256)
		}},
		{"nginx", "nginx", func(at time.Time, n int) string {
			return fmt.Sprintf(`10.0.%d.%d - - [%s] "GET /search/%d?q=a HTTP/1.1" 200 1234 "https://www.example.com/start" "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"`+"\n",
				n/256%256, n%256, at.Format("02/Jan/2006:15:04:05 -0700"), n%10)
		}},
	}
	for _, log := range logs {
		b.Run(log.name, func(b *testing.B) {
			content := manyLines(log.line)
			want := []accesslog.Attribute{accesslog.Method, accesslog.PathOnly, accesslog.Client, accesslog.Subject}
			var requests int
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := accesslog.Open(accesslog.Options{Paths: []string{"-"}, Stdin: bytes.NewReader(content), Format: log.format, Want: want})
				if err != nil {
					b.Fatal(err)
				}
				requests = 0
				for {
					if _, err := r.Next(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					requests++
				}
				r.Close()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(requests), "ns/line")
			b.ReportMetric(float64(len(content)/requests), "B/line")
		})
	}
}
