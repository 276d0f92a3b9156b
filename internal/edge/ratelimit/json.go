package ratelimit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/edge/unary"
)

// ServeJSON answers POST /json. The body is a RateLimitRequest as protobuf JSON, so curl
// can ask what Envoy asks. The answer is 200 for OK and 429 for OVER_LIMIT, with the header
// fields that a client would get and the RateLimitResponse as the body. It is 400 if gRPC
// would return INVALID_ARGUMENT or UNKNOWN, and 503 if the store could not decide. The
// service reads at most maxJSON.
//
// With Options.Reference it accepts every method, and sends the body alone, without the header
// fields of the answer and without a line break at its end.
func (s *Service) ServeJSON(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost && !s.opts.Reference {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "send a RateLimitRequest with POST", http.StatusMethodNotAllowed)
		return
	}
	var b bytes.Buffer
	b.Grow(int(min(max(r.ContentLength, 0), maxJSON)) + bytes.MinRead)
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, maxJSON))
	body := b.Bytes()
	if err != nil {
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			http.Error(w, fmt.Sprintf("the body has more than %d bytes; send larger requests over gRPC", maxJSON), http.StatusRequestEntityTooLarge)
			return
		}
		http.Error(w, "the request could not be read", http.StatusBadRequest)
		return
	}
	if n := objects(body); n > maxObjects {
		http.Error(w, fmt.Sprintf("the body has %d objects, more than %d: a request has at most %d descriptors with %d entries together", n, maxObjects, maxDescriptors, maxEntries), http.StatusBadRequest)
		return
	}
	in := new(rlsv3.RateLimitRequest)
	if err := protojson.Unmarshal(body, in); err != nil {
		http.Error(w, strings.TrimSpace("the body is not a RateLimitRequest "+whereOf.FindString(err.Error())), http.StatusBadRequest)
		return
	}
	out, err := s.exchange(r.Context(), in)
	if err != nil {
		http.Error(w, status.Convert(err).Message(), httpStatus(err))
		return
	}
	s.writeJSON(w, out)
}

// exchange decides a message of the protobuf library. It returns the errors of
// [Service.Handle], and INTERNAL for a message that cannot be encoded.
func (s *Service) exchange(ctx context.Context, in *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	request, err := proto.Marshal(in)
	if err != nil {
		return nil, status.Error(codes.Internal, "the request is not a message")
	}
	answer, _, err := s.Handle(ctx, true, &unary.Call{Request: string(request)}, nil)
	if err != nil {
		return nil, err
	}
	out := new(rlsv3.RateLimitResponse)
	if err := proto.Unmarshal(answer, out); err != nil {
		return nil, status.Error(codes.Internal, "the answer is not a message")
	}
	return out, nil
}

// maxJSON bounds a body in bytes. People and scripts write about a hundred bytes for a
// descriptor.
const maxJSON = 256 << 10

// maxObjects bounds the objects of a body: the request, its entries, its descriptors and
// their limits. An object can be two bytes long, and its message takes far more memory.
const maxObjects = 1 + 2*maxDescriptors + maxEntries

// objects counts the objects that begin in a JSON text. The text need not be valid.
func objects(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && c == '{':
			n++
		}
	}
	return n
}

// whereOf finds the position in an error of the library. The rest of the error quotes the
// body, which may contain an API key.
var whereOf = regexp.MustCompile(`\(line \d+:\d+\)`)

func (s *Service) writeJSON(w http.ResponseWriter, out *rlsv3.RateLimitResponse) {
	body, err := protojson.Marshal(out)
	if err != nil {
		http.Error(w, "the answer could not be written as JSON", http.StatusInternalServerError)
		return
	}
	if !s.opts.Reference {
		for _, h := range out.GetResponseHeadersToAdd() {
			w.Header().Set(h.GetKey(), h.GetValue())
		}
		body = append(body, '\n')
	}
	w.Header().Set("Content-Type", "application/json")
	if out.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(body) // a client that is gone needs no answer
}

func httpStatus(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unknown:
		return http.StatusBadRequest
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
