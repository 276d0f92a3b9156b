package kubernetes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// An answer is what a caller got, and when.
type answer struct {
	sent, received time.Time
	status         int
	header         http.Header
	err            error
}

// failed reports whether the caller got neither the answer of the application nor a denial.
func (a answer) failed() bool {
	return a.err != nil || a.status != http.StatusOK && a.status != http.StatusTooManyRequests
}

// undecided reports whether the request passed although rls did not decide it. Only answers that
// rls has decided have its header.
func (a answer) undecided() bool {
	return !a.failed() && a.header.Get("Ratelimit") == ""
}

func (a answer) admitted() bool {
	return a.err == nil && a.status == http.StatusOK && !a.undecided()
}

// A traffic is a load that keeps every answer.
type traffic struct {
	t       *testing.T
	cancel  context.CancelFunc
	done    sync.WaitGroup
	mu      sync.Mutex
	answers []answer
}

// newTraffic sends requests to a URL, at most one every 20 ms from each of n callers, until stop.
func newTraffic(t *testing.T, n int, url string, headers ...string) *traffic {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tr := &traffic{t: t, cancel: cancel}
	t.Cleanup(func() { tr.stop() })
	for range n {
		tr.done.Go(func() {
			pace := time.NewTicker(20 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				a := answer{sent: time.Now()}
				a.status, a.header, a.err = get(ctx, url, headers...)
				if a.received = time.Now(); ctx.Err() != nil {
					return
				}
				tr.mu.Lock()
				tr.answers = append(tr.answers, a)
				tr.mu.Unlock()
				<-pace.C
			}
		})
	}
	return tr
}

// soFar returns the answers until now.
func (tr *traffic) soFar() []answer {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.answers)
}

// stop ends the requests and returns the answers in the order in which the requests were sent. A
// second time is harmless.
func (tr *traffic) stop() []answer {
	tr.cancel()
	tr.done.Wait()
	slices.SortFunc(tr.answers, func(a, b answer) int { return a.sent.Compare(b.sent) })
	return tr.answers
}

// during waits until d is over while requests are sent.
func (tr *traffic) during(d time.Duration) {
	select {
	case <-tr.t.Context().Done():
	case <-time.After(d):
	}
}

// An outcome is what the callers of a traffic got.
type outcome struct {
	requests, failed, undecided, admitted, denied int
	// most is the largest number of requests that rls certainly admitted within one window.
	most int
	// gap is the time from the first undecided or failed request to the last.
	gap     time.Duration
	longest time.Duration
	// errors has the failures by their text.
	errors map[string]int
}

// outcomeOf counts answers, which must be in the order in which the requests were sent. A request is
// certainly admitted within a window if it was sent and answered within it: rls decided it in between.
func outcomeOf(answers []answer, window time.Duration) outcome {
	o := outcome{requests: len(answers), errors: make(map[string]int)}
	var first, last time.Time
	for i, a := range answers {
		o.longest = max(o.longest, a.received.Sub(a.sent))
		switch {
		case a.failed():
			o.failed++
			o.errors[fmt.Sprint(a.status, " ", a.err)]++
		case a.undecided():
			o.undecided++
		case a.status == http.StatusTooManyRequests:
			o.denied++
		default:
			o.admitted++
			o.most = max(o.most, admittedWithin(answers[i:], a.sent.Add(window)))
		}
		if a.failed() || a.undecided() {
			if first.IsZero() {
				first = a.sent
			}
			last = a.received
		}
	}
	o.gap = last.Sub(first)
	return o
}

func admittedWithin(answers []answer, end time.Time) int {
	count := 0
	for _, a := range answers {
		if a.sent.After(end) {
			break
		}
		if a.admitted() && a.received.Before(end) {
			count++
		}
	}
	return count
}

func (o outcome) String() string {
	s := fmt.Sprintf("%d of %d requests failed, %d passed without a decision", o.failed, o.requests, o.undecided)
	if o.failed+o.undecided > 0 {
		s += fmt.Sprintf(" (within %.1f s)", o.gap.Seconds())
	}
	s += fmt.Sprintf("; %d admitted, %d denied, at most %d admitted in a window; longest answer %d ms", o.admitted, o.denied, o.most, o.longest.Milliseconds())
	if o.failed > 0 {
		s += fmt.Sprint("; ", o.errors)
	}
	return s
}

// forward forwards a port of this process to one of a pod, as an operator does, and returns the URL.
// It ends with the test.
func (n *namespace) forward(pod string, port int) string {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := n.command(ctx, "port-forward", pod, fmt.Sprint(":", port))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewReader(out)
	line, err := lines.ReadString('\n')
	if err != nil {
		n.t.Fatalf("kubectl port-forward %s: %v", pod, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // a line for each connection
	local := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	return "http://" + local
}

// body asks for a URL and returns the body of the answer.
func body(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(res.Body)
	if closeErr := res.Body.Close(); err == nil {
		err = closeErr
	}
	return string(b), err
}
