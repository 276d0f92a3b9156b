package corpus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

const indent = "    "

// codeOf is the gRPC code of an error.
func codeOf(err error) string { return status.Code(err).String() }

// render writes a whole answer as indented lines.
func render(out *rlsv3.RateLimitResponse, err error, extra ...string) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, indent+format+"\n", args...) }
	if err != nil {
		line("error %s: %s", codeOf(err), status.Convert(err).Message())
		return b.String()
	}
	first := short(out.GetOverallCode())
	for _, s := range out.GetStatuses() {
		first += " [" + renderStatus(s) + "]"
	}
	line("%s", first)
	for _, h := range out.GetResponseHeadersToAdd() {
		line("%s", renderHeader(h))
	}
	for _, h := range out.GetRequestHeadersToAdd() {
		line("to the application: %s", renderHeader(h))
	}
	if body := out.GetRawBody(); len(body) > 0 {
		line("body: %s", renderBody(body, out.GetDynamicMetadata().AsMap()))
	}
	if m := out.GetDynamicMetadata(); m != nil {
		text, err := json.Marshal(m.AsMap())
		if err != nil {
			line("metadata: %v", err)
		} else {
			line("metadata: %s", text)
		}
	}
	for _, e := range extra {
		line("%s", e)
	}
	// What is not known above must not be left unsaid.
	rest := proto.Clone(out).(*rlsv3.RateLimitResponse)
	rest.OverallCode, rest.Statuses, rest.ResponseHeadersToAdd, rest.RequestHeadersToAdd, rest.RawBody, rest.DynamicMetadata = 0, nil, nil, nil, nil, nil
	if proto.Size(rest) > 0 {
		line("and: %v", rest)
	}
	return b.String()
}

// problem is the document that denies unless a rule has words of its own.
type problem struct {
	Type       string   `json:"type"`
	Title      string   `json:"title"`
	Status     int      `json:"status"`
	Detail     string   `json:"detail"`
	Rule       string   `json:"rule"`
	Limit      float64  `json:"limit"`
	Window     float64  `json:"window"`
	RetryAfter float64  `json:"retry_after"`
	Violated   []string `json:"violated-policies"`
}

// renderBody writes a body as it is, but of a problem document that repeats what
// the metadata say only the rest.
func renderBody(body []byte, metadata map[string]any) string {
	var p problem
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if d.Decode(&p) != nil || d.More() ||
		p.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || p.Title != "Too Many Requests" || p.Status != 429 ||
		p.Rule != metadata["rule"] || p.Limit != metadata["limit"] || p.RetryAfter != metadata["retry_after"] {
		return strings.ReplaceAll(string(body), "\n", `\n`)
	}
	return fmt.Sprintf("problem document: %s Policies %q, window %s s.", p.Detail, p.Violated, strconv.FormatFloat(p.Window, 'f', -1, 64))
}

func renderStatus(s *rlsv3.RateLimitResponse_DescriptorStatus) string {
	text := short(s.GetCode())
	l := s.GetCurrentLimit()
	switch {
	case l != nil:
		unit := l.GetUnit().String()
		if m := l.GetUnitMultiplier(); m != nil {
			unit = fmt.Sprintf("%d %s", m.GetValue(), unit)
		}
		text += fmt.Sprintf(" %s %d of %d per %s", l.GetName(), s.GetLimitRemaining(), l.GetRequestsPerUnit(), unit)
	case s.GetLimitRemaining() != 0:
		text += fmt.Sprintf(" %d", s.GetLimitRemaining())
	}
	if r := s.GetDurationUntilReset(); r != nil {
		text += fmt.Sprintf(", reset %d", r.GetSeconds())
		if r.GetNanos() != 0 {
			text += fmt.Sprintf(" and %d ns", r.GetNanos())
		}
	}
	return text
}

func renderHeader(h *corev3.HeaderValue) string {
	text := h.GetKey() + ": " + h.GetValue()
	if len(h.GetRawValue()) > 0 {
		text += fmt.Sprintf(" (raw %q)", h.GetRawValue())
	}
	return text
}
