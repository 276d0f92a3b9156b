package ratelimit

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// JSONHandler answers POST /json: the same message as protobuf JSON, so that
// curl can ask what Envoy asks. 200 is OK, 429 is OVER_LIMIT, with the header
// fields a client would see and the RateLimitResponse as the body. 400 is a
// message that Envoy would get INVALID_ARGUMENT for, 503 a store that could not
// decide. The handler reads maxBytes at most, and never more than maxJSON.
func (s *Service) JSONHandler(maxBytes int64) http.Handler {
	maxBytes = min(maxBytes, maxJSON)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "send a RateLimitRequest with POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := readBody(w, r, maxBytes)
		if err != nil {
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				http.Error(w, fmt.Sprintf("the body has more than %d bytes; send larger requests over gRPC", tooLarge.Limit), http.StatusRequestEntityTooLarge)
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
		out, err := s.ShouldRateLimit(r.Context(), in)
		if err != nil {
			http.Error(w, status.Convert(err).Message(), httpStatus(err))
			return
		}
		writeJSON(w, out)
	})
}

// maxJSON bounds a body in bytes. People and scripts send it, of which a descriptor
// takes a hundred.
const maxJSON = 256 << 10

// maxObjects is how many objects a body may have: the request, its entries, its
// descriptors and their limits. Each becomes a message that takes far more memory than
// the two bytes that it may be long.
const maxObjects = 1 + 2*maxDescriptors + maxEntries

// readBody reads a body of most bytes at most.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, &http.MaxBytesError{Limit: most}
	}
	var b bytes.Buffer
	if n := r.ContentLength; n > 0 {
		b.Grow(int(n) + bytes.MinRead)
	}
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, most))
	return b.Bytes(), err
}

// objects counts the objects that begin in a JSON text, which need not be valid.
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

// whereOf is the place in a library's error. The rest of it quotes the body, and so
// whatever API key is there.
var whereOf = regexp.MustCompile(`\(line \d+:\d+\)`)

func writeJSON(w http.ResponseWriter, out *rlsv3.RateLimitResponse) {
	body, err := protojson.Marshal(out)
	if err != nil {
		http.Error(w, "the answer could not be written as JSON", http.StatusInternalServerError)
		return
	}
	for _, h := range out.GetResponseHeadersToAdd() {
		w.Header().Set(h.GetKey(), h.GetValue())
	}
	w.Header().Set("Content-Type", "application/json")
	if out.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(append(body, '\n')) // a client that is gone needs no answer
}

func httpStatus(err error) int {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}
