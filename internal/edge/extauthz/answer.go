package extauthz

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/tier/limits"
	"github.com/slidegate/slidegate/internal/edge/answer"
	"github.com/slidegate/slidegate/internal/edge/answer/dynamic"
	"github.com/slidegate/slidegate/internal/edge/wire"
)

// The field numbers of a CheckResponse, by message.
const (
	answerStatus   protowire.Number = 1
	answerDenied   protowire.Number = 2
	answerOK       protowire.Number = 3
	answerMetadata protowire.Number = 4
	answerError    protowire.Number = 5

	rpcCode protowire.Number = 1

	deniedStatus  protowire.Number = 1
	deniedHeaders protowire.Number = 2
	deniedBody    protowire.Number = 3

	httpCode protowire.Number = 1

	okHeaders          protowire.Number = 2
	okRemove           protowire.Number = 5
	okResponseHeaders  protowire.Number = 6
	okRemoveParameters protowire.Number = 8

	optionHeader protowire.Number = 1
	optionAction protowire.Number = 3

	headerName  protowire.Number = 1
	headerValue protowire.Number = 2
)

// The actions for a header that exists already. The older field append is never set: an
// Envoy that reads only that field overwrites the header then.
const (
	actionAppend    = 0
	actionOverwrite = 2
)

// retryAfter is Retry-After if no decision was possible. How long that lasts is unknown.
const retryAfter = "1"

// reply is the response for a client whose request does not pass.
type reply struct {
	fields []answer.Header
	body   []byte
}

func newReplies(credentials []settings.Credential) (replies [len(results)]reply) {
	for i := range results {
		r := &results[i]
		if r.title == "" {
			continue
		}
		var fields []answer.Header
		switch {
		case Result(i) == Missing:
			fields = challenges(credentials, "")
		case r.status == http.StatusUnauthorized:
			fields = challenges(credentials, `, error="invalid_token"`)
		case r.status == http.StatusServiceUnavailable:
			fields = []answer.Header{{Name: "retry-after", Value: retryAfter}}
		}
		replies[i] = reply{
			fields: append(fields, answer.Header{Name: "content-type", Value: answer.ContentTypeProblem}),
			body: []byte(`{"type":"about:blank","title":"` + r.title + `","status":` + strconv.Itoa(r.status) +
				`,"detail":"` + r.detail + `","reason":"` + r.name + `"}`),
		}
	}
	return replies
}

// challenges returns a WWW-Authenticate field for each accepted scheme. bearerError is the
// error parameter of RFC 6750, which only Bearer has.
func challenges(credentials []settings.Credential, bearerError string) []answer.Header {
	var fields []answer.Header
	for _, c := range credentials {
		value := scheme(c.Kind) + ` realm="api"`
		if c.Kind == settings.CredentialBearer {
			value += bearerError
		}
		h := answer.Header{Name: "www-authenticate", Value: value}
		if !slices.Contains(fields, h) {
			fields = append(fields, h)
		}
	}
	return fields
}

// reply returns the response for a client whose request does not pass.
func (s *Service) reply(c *call, r Result) reply {
	if r == Limited {
		return c.reply
	}
	return s.replies[r]
}

func (s *Service) appendAnswer(b []byte, c *call) []byte {
	r := c.result
	// A code of zero is an empty message, which must be written too.
	b = wire.AppendMessage(b, answerStatus, func(b []byte) []byte {
		return wire.AppendNumber(b, rpcCode, uint64(results[r].code))
	})
	switch {
	case r.passes():
		b = wire.AppendMessage(b, answerOK, func(b []byte) []byte { return appendOK(b, c) })
	case !r.failed():
		b = s.appendReply(b, answerDenied, c, r)
	}
	b = wire.AppendStruct(b, answerMetadata, func(b []byte) []byte { return s.appendMetadata(b, c, r) })
	if r.failed() {
		b = s.appendReply(b, answerError, c, r)
	}
	return b
}

func appendOK(b []byte, c *call) []byte {
	for _, h := range c.upstream.headers {
		b = appendHeader(b, okHeaders, h, actionOverwrite)
	}
	for _, name := range c.upstream.remove {
		b = wire.AppendText(b, okRemove, name)
	}
	for _, h := range c.reply.fields {
		b = appendHeader(b, okResponseHeaders, h, actionOverwrite)
	}
	for _, name := range c.upstream.removeParameters {
		b = wire.AppendText(b, okRemoveParameters, name)
	}
	return b
}

func (s *Service) appendReply(b []byte, field protowire.Number, c *call, r Result) []byte {
	reply := s.reply(c, r)
	return wire.AppendMessage(b, field, func(b []byte) []byte {
		b = wire.AppendMessage(b, deniedStatus, func(b []byte) []byte {
			return wire.AppendNumber(b, httpCode, uint64(results[r].status))
		})
		for i, h := range reply.fields {
			action := uint64(actionOverwrite)
			if i > 0 && reply.fields[i-1].Name == h.Name {
				action = actionAppend // a second challenge
			}
			b = appendHeader(b, deniedHeaders, h, action)
		}
		return wire.AppendMessage(b, deniedBody, func(b []byte) []byte { return append(b, reply.body...) })
	})
}

func appendHeader(b []byte, field protowire.Number, h answer.Header, action uint64) []byte {
	return wire.AppendMessage(b, field, func(b []byte) []byte {
		b = wire.AppendMessage(b, optionHeader, func(b []byte) []byte {
			b = wire.AppendText(b, headerName, h.Name)
			return wire.AppendText(b, headerValue, h.Value)
		})
		return wire.AppendNumber(b, optionAction, action)
	})
}

// appendMetadata appends the entries of the dynamic metadata, in any order.
func (s *Service) appendMetadata(b []byte, c *call, r Result) []byte {
	if c.caller.subject != nil {
		if labels := c.caller.subject.Labels(); len(labels) > 0 {
			b = wire.AppendStructEntry(b, "labels", func(b []byte) []byte {
				for _, name := range c.sorted(labels) {
					b = wire.AppendTextEntry(b, name, labels[name])
				}
				return b
			})
		}
	}
	if !r.passes() {
		b = wire.AppendTextEntry(b, "reason", r.String())
	}
	switch {
	case c.limited: // its entries include limit
		b = dynamic.AppendVerdict(b, c.policy.Verdict(), nil)
	case r.passes():
		b = append(b, c.caller.limits.Encoded(encodeLimits)...)
	}
	return dynamic.AppendSubject(b, c.caller.id, c.caller.tier)
}

// encodeLimits returns the entries of the dynamic metadata for the limits that a tier carries, in the
// form that Envoy reads as the limit of a descriptor.
func encodeLimits(all []limits.Limit) (b []byte) {
	for _, l := range all {
		b = wire.AppendStructEntry(b, l.Key(), func(b []byte) []byte {
			b = wire.AppendNumberEntry(b, "requests_per_unit", float64(l.Requests))
			return wire.AppendTextEntry(b, "unit", strings.ToUpper(l.Unit))
		})
	}
	return b
}

// sorted returns the sorted names of labels, in memory of the call.
func (c *call) sorted(labels map[string]string) []string {
	for name := range labels {
		c.names = append(c.names, name)
	}
	slices.Sort(c.names)
	return c.names
}
