package traffic

import (
	"context"
	"errors"
	"fmt"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"
)

// ErrWrong is wrapped by the error of an answer that Check refuses.
var ErrWrong = errors.New("wrong answer")

// A Call is a call over gRPC and a check of its answer.
type Call struct {
	Method  string
	Request proto.Message
	// Check returns an error that says how an answer is wrong. The message has the response type of the
	// method.
	Check func(proto.Message) error
}

// NewAnswer returns an empty answer of the method of a service that rls has for Envoy.
func NewAnswer(method string) proto.Message {
	switch method {
	case rlsv3.RateLimitService_ShouldRateLimit_FullMethodName:
		return new(rlsv3.RateLimitResponse)
	case authv3.Authorization_Check_FullMethodName:
		return new(authv3.CheckResponse)
	default:
		return new(healthv1.HealthCheckResponse)
	}
}

// Send makes the call once, and returns the answer.
func (c *Call) Send(ctx context.Context, conn grpc.ClientConnInterface) (proto.Message, error) {
	answer := NewAnswer(c.Method)
	if err := conn.Invoke(ctx, c.Method, c.Request, answer); err != nil {
		return nil, err
	}
	return answer, c.checked(answer)
}

// Read checks the bytes of an answer.
func (c *Call) Read(message []byte) error {
	answer := NewAnswer(c.Method)
	if err := proto.Unmarshal(message, answer); err != nil {
		return errors.Join(ErrWrong, err)
	}
	return c.checked(answer)
}

func (c *Call) checked(answer proto.Message) error {
	if err := c.Check(answer); err != nil {
		return fmt.Errorf("%w: %w", ErrWrong, err)
	}
	return nil
}

// Dial returns a connection to host:port, without TLS. It connects with the first call.
func Dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// Descriptor returns the descriptor of entries that are given as key, value, key, value.
func Descriptor(pairs ...string) *ratelimitcommonv3.RateLimitDescriptor {
	d := new(ratelimitcommonv3.RateLimitDescriptor)
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}
