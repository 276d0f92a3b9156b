package compare

import (
	"context"
	"crypto/tls"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/wire"
)

const (
	// maxPending bounds the requests that wait for an answer, in bytes together.
	maxPending = 16 << 20
	// maxAnswer bounds an answer, in bytes. Its headers and metadata are not read.
	maxAnswer = 1 << 20
)

// Options of a [Comparer]. Address, Fraction, Timeout, MaxInFlight, Secrets, Meters and Log are
// required.
type Options struct {
	// Address is host:port of the other service.
	Address string
	// TLS is the configuration of connections. Nil: plain text.
	TLS *tls.Config
	// Fraction is the fraction of descriptors whose calls are compared, from 0 to 1.
	Fraction float64
	// Timeout bounds the wait for an answer.
	Timeout time.Duration
	// MaxInFlight bounds the calls that wait for an answer.
	MaxInFlight int
	// Secrets knows the descriptor entries whose values are not logged.
	Secrets *tier.Secrets
	Meters  Meters
	// Log gets a line for each difference and for each failure. The Comparer limits their
	// number by itself.
	Log *zap.Logger
}

// Meters counts what a [Comparer] has compared. It is safe for concurrent use.
type Meters interface {
	// Compared counts a call by both answers, and by the reason if one service denies it and the
	// other one does not. domain and rule name a rule, or are empty.
	Compared(domain, rule string, ours, theirs Answer, why Reason)
}

// A Comparer compares calls. It is safe for concurrent use.
type Comparer struct {
	o       Options
	conn    *grpc.ClientConn
	ctx     context.Context //nolint:containedctx // ends with Close, and with it all calls
	cancel  context.CancelFunc
	close   func() error
	now     func() time.Time // time.Now, but in tests
	slots   chan struct{}    // one for each call that waits for an answer
	pending atomic.Int64     // bytes of requests that wait
	denials denials
	logs    logs
}

// New returns a Comparer. It connects with the first call. Close it.
func New(o Options) (*Comparer, error) {
	secure := insecure.NewCredentials()
	if o.TLS != nil {
		secure = credentials.NewTLS(o.TLS)
	}
	conn, err := grpc.NewClient("dns:///"+o.Address,
		grpc.WithTransportCredentials(secure),
		grpc.WithNoProxy(),              // the other service is in the same network
		grpc.WithDisableRetry(),         // a second attempt could be charged twice there
		grpc.WithDisableServiceConfig(), // DNS must not change how rls calls
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(adapter.NewCodec()), grpc.MaxCallRecvMsgSize(maxAnswer)),
	)
	if err != nil {
		return nil, err
	}
	c := &Comparer{o: o, conn: conn, slots: make(chan struct{}, o.MaxInFlight), logs: newLogs(o.Log), now: time.Now}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.ctx = metadata.AppendToOutgoingContext(c.ctx, adapter.Kept[adapter.Compared].Name, "1")
	c.close = sync.OnceValue(func() error {
		c.cancel()
		for range cap(c.slots) {
			c.slots <- struct{}{} // never freed again
		}
		return conn.Close()
	})
	return c, nil
}

// Close ends all calls and returns when their goroutines have ended. Calls of Compare after
// that are counted as skipped. Further calls of Close return the same error.
func (c *Comparer) Close() error { return c.close() }

// Compare compares a call that is decided, if the call is sampled. encoded is the request
// as it came, req is the request after the decision, and v is nil if there was no decision.
// Compare does not block, and keeps no argument.
func (c *Comparer) Compare(encoded string, req *decide.Request, v *decide.Verdict) {
	if !sampled(req, c.o.Fraction) {
		return
	}
	size := int64(len(encoded))
	select {
	case c.slots <- struct{}{}:
		if c.pending.Add(size) <= maxPending {
			go c.ask(newQuestion(c.now(), strings.Clone(encoded), req, v))
			return
		}
		c.release(size)
	default:
	}
	q := newQuestion(c.now(), "", req, v)
	domain, rule := q.rule(new(answer))
	c.o.Meters.Compared(domain, rule, q.ours, Skipped, Same)
}

func (c *Comparer) release(size int64) {
	c.pending.Add(-size)
	<-c.slots
}

func (c *Comparer) ask(q *question) {
	defer c.release(int64(len(q.encoded)))
	var a answer
	theirs, err := c.call(q.encoded, &a)
	if c.ctx.Err() != nil {
		return // closed
	}
	now := c.now()
	domain, rule := q.rule(&a)
	why := Same
	switch {
	case err != nil:
		c.logs.failed(c.o.Address, theirs, status.Code(err))
	case q.ours == OK && theirs == OverLimit, q.ours == OverLimit && theirs == OK:
		why = q.reason(&a, now, &c.denials)
		c.logs.differed(q, &a, domain, rule, theirs, why, c.o.Secrets)
	}
	c.o.Meters.Compared(domain, rule, q.ours, theirs, why)
	if q.ours == OverLimit {
		// Only now: what follows compares this instant with edges of the other's windows.
		c.denials.note(q, now)
	}
}

// call makes the call. An answer with another code than OK and OVER_LIMIT is an error.
func (c *Comparer) call(encoded string, a *answer) (Answer, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Timeout)
	defer cancel()
	var response rlsv3.RateLimitResponse
	err := c.conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, wire.Encoded(encoded), &response)
	*a = answerOf(&response)
	switch {
	case err == nil && a.code == codeOK:
		return OK, nil
	case err == nil && a.code == codeOverLimit:
		return OverLimit, nil
	case err == nil:
		return Failed, status.Error(codes.Internal, "the answer has an unknown code")
	case status.Code(err) == codes.DeadlineExceeded:
		return TimedOut, err
	default:
		return Failed, err
	}
}
