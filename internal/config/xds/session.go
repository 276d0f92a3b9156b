package xds

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/zap"
	statusv3 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

type session struct {
	client *Client
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient

	newest  chan *discoveryv3.DiscoveryResponse // at most one; only read sends
	ended   chan error                          // why the stream ended
	pending *discoveryv3.DiscoveryResponse      // taken from newest, and to be answered next

	version string // of the last response that was accepted on this stream
	refused refusal
	again   *backoff.ExponentialBackOff // before the answer to a refused response that comes again
	rest    time.Time                   // no load before
}

type refusal struct {
	content [sha256.Size]byte // of its resources
	err     error             // nil: no response was refused
}

// maxAgain bounds the wait before the answer to a refused response that comes again. A server
// may send nothing else until then.
const maxAgain = 5 * time.Second

func newSession(c *Client, stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient) *session {
	s := &session{
		client: c, stream: stream,
		newest: make(chan *discoveryv3.DiscoveryResponse, 1), ended: make(chan error, 1),
		again: &backoff.ExponentialBackOff{
			InitialInterval: min(c.opts.Backoff, maxAgain), MaxInterval: min(c.opts.MaxBackoff, maxAgain),
			Multiplier: growth, RandomizationFactor: jitter,
		},
	}
	s.again.Reset()
	return s
}

// read reads the stream until it ends, and keeps the newest response.
func (s *session) read() {
	for {
		r, err := s.stream.Recv()
		if err != nil {
			s.ended <- err
			return
		}
		if r.GetTypeUrl() != typeURL {
			s.client.opts.Log.Warn("the xDS server sent a type of resources that rls did not ask for",
				zap.String("type", shorten(r.GetTypeUrl(), maxReason)))
			continue
		}
		select {
		case <-s.newest:
		default:
		}
		s.newest <- r
	}
}

// run asks for rules and answers responses, until the stream or ctx ends. responded says that
// there was a response.
func (s *session) run(ctx context.Context) (responded bool, err error) {
	// The version stays empty on a new stream: another server may use the same one for other
	// rules.
	if err := s.send(&discoveryv3.DiscoveryRequest{}); err != nil {
		return false, s.end(err)
	}
	for {
		r, err := s.next(ctx)
		if r == nil {
			return responded, err
		}
		responded = true
		answer, wait := s.answer(r)
		if wait > 0 {
			if s.pending = s.waitForNewer(ctx, wait); s.pending != nil {
				continue
			}
		}
		if ctx.Err() != nil {
			return responded, nil
		}
		if err := s.send(answer); err != nil {
			return responded, s.end(err)
		}
	}
}

// next waits for a response, and for the end of the rest after a load. It returns nil at the end
// of the stream or of ctx.
func (s *session) next(ctx context.Context) (*discoveryv3.DiscoveryResponse, error) {
	r := s.pending
	s.pending = nil
	if r == nil {
		select {
		case r = <-s.newest:
		case err := <-s.ended:
			s.ended <- err
			select {
			case r = <-s.newest: // it came before the end
				return r, nil
			default:
			}
			return nil, plain(err)
		case <-ctx.Done():
			return nil, nil
		}
	}
	rest := time.NewTimer(time.Until(s.rest))
	defer rest.Stop()
	for {
		select {
		case r = <-s.newest:
		case <-rest.C:
			return r, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// waitForNewer waits before the answer to a response that was refused again. It returns a newer
// response if one comes.
func (s *session) waitForNewer(ctx context.Context, wait time.Duration) *discoveryv3.DiscoveryResponse {
	select {
	case r := <-s.newest:
		return r
	case err := <-s.ended:
		s.ended <- err
	case <-ctx.Done():
	case <-time.After(wait):
	}
	return nil
}

func plain(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// end returns why the stream ended after send has failed with err.
func (s *session) end(err error) error {
	if errors.Is(err, io.EOF) { // the reason is with the reader
		return plain(<-s.ended)
	}
	return err
}

func (s *session) send(r *discoveryv3.DiscoveryRequest) error {
	r.TypeUrl, r.Node, r.VersionInfo = typeURL, s.client.node, s.version
	return s.stream.Send(r)
}

// answer loads a response and returns the answer to it, and how long to wait before sending it.
func (s *session) answer(r *discoveryv3.DiscoveryResponse) (*discoveryv3.DiscoveryRequest, time.Duration) {
	version := shorten(r.GetVersionInfo(), maxReason)
	var wait time.Duration
	content := contentOf(r)
	err := s.refused.err
	if err != nil && content == s.refused.content {
		wait = s.again.NextBackOff()
	} else {
		begin := time.Now()
		err = s.load(version, r)
		s.rest = time.Now().Add(min(time.Since(begin), maxRest))
		s.again.Reset()
	}
	answer := &discoveryv3.DiscoveryRequest{ResponseNonce: r.GetNonce()}
	s.refused = refusal{content, err}
	if err != nil {
		answer.ErrorDetail = &statusv3.Status{Code: int32(codes.InvalidArgument), Message: shorten(err.Error(), maxDetail)}
		return answer, wait
	}
	s.version = r.GetVersionInfo()
	s.client.setState(func(st *State) { st.Version, st.Loaded = version, true })
	s.client.opts.Log.Debug("accepted rules of the xDS server", zap.String("version", version))
	return answer, 0
}

const maxRest = 10 * time.Second

// maxDetail bounds the reason that a server gets, in bytes.
const maxDetail = 4 << 10

func (s *session) load(version string, r *discoveryv3.DiscoveryResponse) error {
	domains, err := Decode(r.GetResources())
	if err != nil {
		s.client.opts.Loader.Refused(version, err)
		return err
	}
	return s.client.opts.Loader.Load(version, domains)
}

// contentOf returns the digest of the resources of a response, in any order.
func contentOf(r *discoveryv3.DiscoveryResponse) [sha256.Size]byte {
	sums := make([][sha256.Size]byte, 0, len(r.GetResources()))
	for _, resource := range r.GetResources() {
		one := sha256.Sum256(resource.GetValue())
		sums = append(sums, sha256.Sum256(append(one[:], resource.GetTypeUrl()...)))
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return strings.Compare(string(a[:]), string(b[:])) })
	h := sha256.New()
	for i := range sums {
		h.Write(sums[i][:])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func shorten(text string, most int) string {
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}
