package extauthz

import (
	"context"
	"hash/maphash"
	"net/netip"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/edge/adapter"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/unary"
)

// Options of a [Service]. Decider, Secrets, Headers and Meters are required.
type Options struct {
	Decider *decide.Decider
	// Subjects finds the subject of a credential. Nil means the directory of the active
	// rules. Without a directory every credential is unknown.
	Subjects tier.Resolver
	Secrets  *tier.Secrets
	Headers  *answer.Renderer
	// Meters counts the results.
	Meters Meters
	// Traced gets the result of each request with its context, for traces. Nil disables it.
	Traced func(context.Context, Result)
	// Log gets the errors in the context of a route. Wrap it to sample them. Nil disables
	// logging.
	Log *zap.Logger

	// Authz are the settings. The first of Credentials that has a key counts. A key at a later entry
	// must not belong to another subject. Query parameters with keys are removed in any case. Wait is
	// for all keys of one request together.
	settings.Authz
	// MaxUnknown is how many unknown API keys one masked address may send in a minute. Further ones
	// are denied with 429, the first time without a look-up; known keys pass. Zero: any number.
	MaxUnknown int
	// Probes denies the calls with some keys. Nil denies none.
	Probes *probe.Active
	// PlainKeys gives Subjects the API keys themselves, and not only their digests.
	PlainKeys bool
}

// Meters counts what a Service answers. It is safe for concurrent use.
type Meters interface {
	// Authorized counts a request by its result.
	Authorized(Result)
	// DegradedAnswer counts a request whose limits were decided without the store. It
	// gets the strictest choice that their rules make for this case.
	DegradedAnswer(rules.OnStoreError)
}

// Service decides which requests may pass. It is safe for concurrent use.
//
// # The context of a route
//
// The context is a set of named texts. It comes from context_extensions in Envoy's
// ExtAuthzPerRoute, or from the query of /authz:
//
//   - anonymous: "true" lets requests without a credential pass.
//   - domain: the request must pass the limits of this domain.
//   - descriptors: the template of the descriptors for these limits. The default is the
//     API key and the client's address.
//   - cost: the cost of each descriptor. The default is 1.
//   - The template may use every other name.
//
// A template is a list of descriptors separated by semicolons. The entries of a
// descriptor are separated by commas. An entry is NAME=VALUE. VALUE is a text or one of
// %KEY%, %SUBJECT%, %TIER%, %ADDRESS%, %MASKED_ADDRESS%, %METHOD%, %PATH%, %HOST%,
// %REQ(header)%, %CONTEXT(name)% and %LABEL(name)%. An entry NAME has a default value if
// NAME is api_key, subject, tier, remote_address, masked_remote_address, method, path or
// host. The value of any other NAME is the text of that name in the context. If the
// request does not have a value, the descriptor is left out, as Envoy does. Only the entry is left
// out if it is NAME?=VALUE or NAME?, or has the idempotency keys of charge_once in the domain.
//
// Addresses have the form that Envoy's rate limit filter sends under the same names, so
// both share one log. remote_address is the whole address. masked_remote_address has a
// prefix, as in 2001:db8::/64. A client with IPv6 usually owns a /64 with very many
// addresses: limit "api_key;masked_remote_address" there, with rules for that name.
type Service struct {
	opts      Options
	replies   [len(results)]reply
	templates templates
	failures  failures
	handler   adapter.Handler[*call]
}

// NewService returns a Service.
func NewService(o Options) *Service {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	s := &Service{opts: o, replies: newReplies(o.Credentials)}
	s.failures = failures{most: o.MaxUnknown, now: time.Now, addresses: make(map[netip.Prefix]*failed), seed: maphash.MakeSeed()}
	s.handler = adapter.Handler[*call]{
		Service: &authv3.Authorization_ServiceDesc, Method: "Check",
		New: func() *call { return new(call) }, Decide: s.decide, Append: s.appendAnswer,
	}
	return s
}

// Register adds the service to a gRPC server, which must have been made with
// [adapter.Codec].
func (s *Service) Register(server grpc.ServiceRegistrar) { s.handler.Register(server) }

// Handle is the unary.Handler of Check. If it cannot read a request, it returns the error
// of grpc-go. It returns no other error.
func (s *Service) Handle(ctx context.Context, wait bool, c *unary.Call, answer []byte) ([]byte, bool, error) {
	return s.handler.Handle(ctx, wait, c, answer)
}
