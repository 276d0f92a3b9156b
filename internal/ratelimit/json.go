package ratelimit

import (
	"errors"
	"io"
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
// decide. maxBytes bounds the message.
func (s *Service) JSONHandler(maxBytes int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "send a RateLimitRequest with POST", http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
		if err != nil {
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
				return
			}
			http.Error(w, "the request could not be read", http.StatusBadRequest)
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
