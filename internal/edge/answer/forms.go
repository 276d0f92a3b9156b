package answer

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// About is what the body of a denial depends on, besides the verdict.
type About struct {
	// Form is that of the route, for rules without a body. Zero: a problem document.
	Form rules.Form
	// MCP is what Envoy's MCP filter has read of the request, as JSON. The error of the form mcp has its
	// id. Empty: the id is null.
	MCP string
	// Code is the code that Envoy gives denials of gRPC calls. FormGRPC must repeat it: grpc-go takes a
	// difference for an error. Zero: RESOURCE_EXHAUSTED.
	Code uint64
	// Now is the clock of waits that are so long that the body names their end.
	Now func() time.Time
}

// FormOf returns the form of the route that sends these descriptors: the value of an entry "form".
func FormOf(all []decide.Descriptor) rules.Form {
	for i := range all {
		for _, e := range all[i].Entries {
			if e.Key != rules.FormEntry {
				continue
			}
			if f := rules.ParseForm(e.Value); f != rules.FormUnset {
				return f
			}
		}
	}
	return rules.FormUnset
}

// AppendDenial appends the body of a denial, and its header fields, of which content-type is the first.
// The body of the rule goes before the form of the route. v must be a denial.
//
// No string in the JSON needs escapes: each is a constant, a number, a name that rules.ValidName
// accepts, or the abbreviation of a time zone. The id of an MCP request is encoded.
func AppendDenial(fields []Header, body []byte, v *decide.Verdict, a About) (withFields []Header, withBody []byte) {
	var s *decide.LimitStatus
	form := a.Form
	if v.Decisive >= 0 {
		s = &v.Limits[v.Decisive]
		form = cmp.Or(s.Rule.Answer.Denial.Form, form)
		if hasText(s) {
			return append(fields, contentType(s.Rule.Answer.Denial.ContentType)), append(body, s.Rule.Answer.Denial.Body...)
		}
	}
	switch form {
	case rules.FormOpenAI:
		body = append(body, `{"error":{"message":"`...)
		body = appendDetail(body, s, a.Now)
		kind := "requests"
		if s != nil && s.Limit.Budget != nil {
			kind = "tokens"
		}
		return append(fields, contentTypeJSON), append(body, `","type":"`+kind+`","param":null,"code":"rate_limit_exceeded"}}`...)
	case rules.FormAnthropic:
		body = append(body, `{"type":"error","error":{"type":"rate_limit_error","message":"`...)
		body = appendDetail(body, s, a.Now)
		return append(fields, contentTypeJSON), append(body, `"}}`...)
	case rules.FormGRPC:
		before := len(body)
		body = appendDetail(body, s, a.Now)
		return appendStatus(append(fields, contentType("text/plain; charset=utf-8")), string(body[before:]), v, a.Code), body
	case rules.FormMCP:
		return append(fields, contentTypeJSON), appendRPCError(body, v, s, a)
	default:
		return append(fields, contentType(ContentTypeProblem)), appendProblem(body, s)
	}
}

func contentType(value string) Header { return Header{"content-type", value} }

var contentTypeJSON = contentType("application/json")

// RuleHasBody reports whether the rule of a denial chooses the body.
func RuleHasBody(v *decide.Verdict) bool {
	if v.Decisive < 0 {
		return false
	}
	s := &v.Limits[v.Decisive]
	return hasText(s) || s.Rule.Answer.Denial.Form != rules.FormUnset
}

// hasText reports whether the text of the rule is used. If the limit could not be checked,
// it is not, because it describes an exceeded limit.
func hasText(s *decide.LimitStatus) bool {
	return s.Rule.Answer.Denial.Body != "" && !s.DeniedUndecided()
}

// resourceExhausted is the code of gRPC.
const resourceExhausted = 8

// appendStatus appends the fields that libraries of gRPC read. Those with a retry policy wait for
// grpc-retry-pushback-ms, and give up if it is negative. Programs find a google.rpc.RetryInfo in the
// google.rpc.Status of grpc-status-details-bin. It is written by hand, because the library limiter does
// without protobuf.
func appendStatus(fields []Header, message string, v *decide.Verdict, code uint64) []Header {
	number := func(b []byte, field byte, n uint64) []byte { return binary.AppendUvarint(append(b, field<<3), n) }
	text := func(b []byte, field byte, text string) []byte {
		return append(binary.AppendUvarint(append(b, field<<3|2), uint64(len(text))), text...)
	}
	status := text(number(nil, 1, cmp.Or(code, resourceExhausted)), 2, message)
	pushback := int64(-1)
	if Retryable(v) {
		exact := milliseconds(v.Limits[v.Decisive].RetryAfter())
		if waits(v) {
			pushback = exact
		}
		delay := number(number(nil, 1, uint64(exact/1000)), 2, uint64(exact%1000*int64(time.Millisecond)))
		info := text(nil, 1, string(delay))
		status = text(status, 3, string(text(text(nil, 1, "type.googleapis.com/google.rpc.RetryInfo"), 2, string(info))))
	}
	return append(fields,
		Header{"grpc-retry-pushback-ms", strconv.FormatInt(pushback, 10)},
		Header{"grpc-status-details-bin", base64.RawStdEncoding.EncodeToString(status)})
}

// rpcLimited is the code of a denial in JSON-RPC. SDKs of MCP give other meanings to -32000 and -32001.
const rpcLimited = "-32029"

// appendRPCError appends an error of JSON-RPC.
func appendRPCError(dst []byte, v *decide.Verdict, s *decide.LimitStatus, a About) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, rpcID(a.MCP)...)
	dst = append(dst, `,"error":{"code":`+rpcLimited+`,"message":"`...)
	dst = appendDetail(dst, s, a.Now)
	dst = append(dst, `","data":{`...)
	if s != nil {
		dst = append(dst, `"rule":"`...)
		dst = append(dst, s.Rule.Name...)
		dst = append(dst, `",`...)
	}
	if Retryable(v) {
		dst = append(dst, `"retryAfterMs":`...)
		dst = strconv.AppendInt(dst, milliseconds(s.RetryAfter()), 10)
		dst = append(dst, ',')
	}
	dst = append(dst, `"retry":`...)
	return append(strconv.AppendBool(dst, waits(v)), `}}}`...)
}

// rpcID returns the id of a request as JSON, or null.
func rpcID(request string) []byte {
	var read struct {
		ID any `json:"id"`
	}
	d := json.NewDecoder(strings.NewReader(request))
	d.UseNumber()
	if err := d.Decode(&read); err == nil {
		switch read.ID.(type) {
		case string, json.Number:
			if id, err := json.Marshal(read.ID); err == nil {
				return id
			}
		}
	}
	return []byte("null")
}

// appendDetail appends the sentence about the denial that a person reads. s is nil if the request
// exceeds a bound of the service. now is the clock for the end of a long wait; nil gives the wait in
// seconds.
func appendDetail(dst []byte, s *decide.LimitStatus, now func() time.Time) []byte {
	switch {
	case s == nil || s.DeniedUndecided() && s.Decision.Never:
		return append(dst, detailBeyond...)
	case s.DeniedUndecided():
		dst = append(appendRule(dst, "Rule ", s), " cannot be checked now"...)
	case s.Decision.Never && s.Limit.Hits == 0:
		return append(appendLimit(appendRule(dst, "No request passes under rule ", s), s), '.')
	case s.Decision.Never:
		dst = append(append(dst, "This request costs "...), rules.Amount(s.Cost, s.Limit.Currency)...)
		return append(appendLimit(appendRule(dst, ", more than is ever free under rule ", s), s), '.')
	case s.Decision.HoldsFull:
		dst = append(strconv.AppendUint(append(dst, "Already "...), window.MaxHolds, 10), " requests have reserved a part"...)
		dst = appendRule(dst, " of the budget of rule ", s)
	case s.Limit.Budget != nil:
		dst = append(append(dst, "No room for "...), rules.Amount(s.Cost, s.Limit.Currency)...)
		dst = appendRule(dst, " in the budget of rule ", s)
		ends := s.RetryAfter() > maxWait && now != nil
		if ends {
			dst = appendEnd(append(dst, " until "...), s, now())
		}
		dst = s.Limit.AppendUse(append(dst, ": "...), s.Spent(), s.Decision.Reserved)
		if ends {
			return append(dst, '.')
		}
	case s.RetryAfter() > maxWait && now != nil:
		dst = append(appendRule(dst, "The budget of rule ", s), " is used up until "...)
		return append(appendLimit(appendEnd(dst, s, now()), s), '.')
	case s.RetryAfter() > maxWait || s.Limit.Policy == window.Calendar:
		dst = appendLimit(append(appendRule(dst, "The budget of rule ", s), " is used up"...), s)
	default:
		dst = appendLimit(appendRule(dst, "No room under rule ", s), s)
	}
	dst = append(dst, "; try again in "...)
	dst = strconv.AppendInt(dst, RetryAfter(s), 10)
	return append(dst, " s."...)
}

// appendRule appends a text and the name of the rule.
func appendRule(dst []byte, text string, s *decide.LimitStatus) []byte {
	return append(append(dst, text...), s.Rule.Name...)
}

// appendLimit appends the numbers of the limit.
func appendLimit(dst []byte, s *decide.LimitStatus) []byte {
	return s.Limit.AppendTo(append(dst, ": "...))
}

// appendEnd appends when a long wait ends, rounded up to minutes, by the clock of the calendar. The
// clock of the store may be ahead by up to a second, so that a period does not end a minute late.
func appendEnd(dst []byte, s *decide.LimitStatus, now time.Time) []byte {
	const sameWeek = 6 * 24 * time.Hour
	end := now.Add(s.RetryAfter() - time.Second + time.Minute - 1).Truncate(time.Minute).UTC()
	if s.Limit.Calendar != nil {
		end = s.Limit.Calendar.Local(end.Unix())
	}
	layout := "2 January 2006 15:04 MST"
	if end.Sub(now) < sameWeek {
		layout = "Monday 15:04 MST"
	}
	return end.AppendFormat(dst, layout)
}
