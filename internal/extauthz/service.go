package extauthz

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/slidegate/slidegate/internal/adapter"
	"github.com/slidegate/slidegate/internal/answer"
	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/reuse"
	"github.com/slidegate/slidegate/internal/tier"
	"github.com/slidegate/slidegate/internal/unary"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

// Options of a [Service]. Decider, Secrets and Headers are required.
type Options struct {
	Decider *policy.Decider
	// Subjects says whose a credential is. Nil: the directory of the active rules;
	// without one nobody is known.
	Subjects tier.Resolver
	Secrets  *tier.Secrets
	Headers  *answer.Renderer
	// Meters counts the results. Nil: nobody does.
	Meters Meters
	// Log gets what is wrong in the context of a route. Wrap it to sample it. Nil:
	// nobody is told.
	Log *zap.Logger

	// Credentials are the places where an API key may be; the first that has one
	// counts. Keys in the others must not be another subject's.
	Credentials []Credential
	// RemoveCredential takes credentials off a request that passes. Query parameters
	// are taken off in any case.
	RemoveCredential bool
	// Realm stands in WWW-Authenticate.
	Realm string
	// Wait is how long one request waits for Subjects at most, however many keys it
	// has.
	Wait time.Duration
	// PlainKeys has Subjects asked by API keys themselves, and not by their digests.
	PlainKeys bool

	// SubjectHeader and TierHeader tell the upstream who calls. Empty: no header.
	SubjectHeader, TierHeader string
	LabelHeaders              []LabelHeader
	// RateLimitRule is whose override metadata has as rate_limit. Empty: the only
	// one that a subject has.
	RateLimitRule string

	Address AddressRule
	// IPv6Prefix is how many bits of an IPv6 address count where it is masked: in
	// the subject of anonymous requests and as masked_remote_address. Zero: all 128.
	IPv6Prefix int
}

// LabelHeader tells the upstream one label of the subject.
type LabelHeader struct{ Header, Label string }

// Meters counts what a Service answers. Safe for concurrent use.
type Meters interface {
	// Authorized counts a request by what became of it.
	Authorized(Result)
	// DegradedAnswer counts limits that were decided without the store, by the
	// strictest choice that their rules made for that.
	DegradedAnswer(policy.OnStoreError)
}

// unmetered is a Meters that counts nothing.
type unmetered struct{}

func (unmetered) Authorized(Result)                  {}
func (unmetered) DegradedAnswer(policy.OnStoreError) {}

// Service answers who may pass. It is safe for concurrent use.
//
// # The context of a route
//
// Texts by name, from context_extensions of Envoy's ExtAuthzPerRoute or from the
// query of /authz:
//
//   - anonymous: "true" lets requests without any credential pass.
//   - domain: the limits of this domain are taken.
//   - descriptors: which of them, as a template. Without one those of the API key
//     and of the client's address.
//   - cost: what each descriptor costs, 1 if it is not there.
//   - any other is there for the template.
//
// A template is a list of descriptors separated by semicolons, whose entries are
// separated by commas. An entry is NAME=VALUE, where VALUE is a text or one of
// %KEY%, %SUBJECT%, %TIER%, %ADDRESS%, %MASKED_ADDRESS%, %METHOD%, %PATH%, %HOST%,
// %REQ(header)%, %CONTEXT(name)% and %LABEL(name)%. NAME alone is an entry whose
// value goes without saying: api_key, subject, tier, remote_address,
// masked_remote_address, method, path, host, else what the context calls so. A
// descriptor with a value that the request does not have is left out, as Envoy
// leaves it out.
//
// Addresses are what Envoy's rate limit filter sends by the same names, so that both
// share one log: remote_address is the whole address, masked_remote_address has a
// prefix as in 2001:db8::/64. Clients with IPv6 have a /64 to themselves, and as many
// addresses: who serves them limits "api_key;masked_remote_address", by rules for that
// name.
type Service struct {
	opts      Options
	replies   [len(results)]reply
	templates templates
	door      adapter.Door[*call]
}

// NewService returns a Service.
func NewService(o Options) *Service {
	if o.Meters == nil {
		o.Meters = unmetered{}
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.SubjectHeader, o.TierHeader = strings.ToLower(o.SubjectHeader), strings.ToLower(o.TierHeader)
	o.LabelHeaders = append([]LabelHeader(nil), o.LabelHeaders...)
	for i := range o.LabelHeaders {
		o.LabelHeaders[i].Header = strings.ToLower(o.LabelHeaders[i].Header)
	}
	o.Credentials = append([]Credential(nil), o.Credentials...)
	for i := range o.Credentials {
		if c := &o.Credentials[i]; c.Kind == Header {
			c.Name = strings.ToLower(c.Name)
		}
	}
	s := &Service{opts: o, replies: newReplies(o.Credentials, o.Realm)}
	s.door = adapter.Door[*call]{
		Service: &authv3.Authorization_ServiceDesc, Method: "Check",
		New: func() *call { return new(call) }, Decide: s.decide, Append: s.appendAnswer,
	}
	return s
}

// Register adds the service to a gRPC server, which must have been made with
// [adapter.Codec].
func (s *Service) Register(server grpc.ServiceRegistrar) { s.door.Register(server) }

// Handle is the unary.Handler of Check. An error is what grpc-go tells of a request that
// it cannot read.
func (s *Service) Handle(ctx context.Context, wait bool, c *unary.Call, answer []byte) ([]byte, bool, error) {
	return s.door.Handle(ctx, wait, c, answer)
}

// Check answers whether a request may pass. The answer always has a status. An
// error is INTERNAL: one of the messages cannot be encoded, which is a bug.
func (s *Service) Check(ctx context.Context, in *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	out := new(authv3.CheckResponse)
	if err := s.door.Exchange(ctx, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// call is one request and what becomes of it. Its memory is reused by the next.
type call struct {
	in          request
	step        step
	result      Result   // as far as is known
	fingerprint string   // of the API key; empty without one
	key         string   // the API key itself
	others      []string // API keys in further places
	checked     int      // how many of others are no other subject's
	subject     *tier.Subject
	caller      policy.Caller
	id, tier    string
	address     netip.Addr // valid once asked for, if there is one
	located     bool
	spent       int // on values of descriptors, in bytes

	limited  bool // there is a verdict
	request  policy.Request
	entries  []descriptors.Entry
	policy   policy.Call
	fields   []answer.Header // for the client
	body     []byte
	upstream upstream
	names    []string // of labels
}

// step is how far a call is: what comes next may have to wait.
type step int

const (
	atStart  step = iota // nothing is known
	atKey                // there is an API key; whose it is comes next
	atOthers             // its subject is known; whose the other API keys are comes next
	atCaller             // it is known who calls
	atLimits             // there are limits; whether they have room comes next
)

// Decode implements [wire.Decoder].
func (c *call) Decode(encoded string) error { return c.in.Decode(encoded) }

// Forget implements [adapter.Call].
func (c *call) Forget() {
	c.in.forget()
	c.upstream.forget()
	c.policy.Forget()
	*c = call{
		in: c.in,
		request: policy.Request{
			Descriptors: reuse.Slice(c.request.Descriptors),
			Plain:       reuse.Slice(c.request.Plain),
		},
		others:   reuse.Slice(c.others),
		entries:  reuse.Slice(c.entries),
		policy:   c.policy,
		fields:   reuse.Slice(c.fields),
		body:     reuse.Slice(c.body),
		upstream: c.upstream,
		names:    reuse.Slice(c.names),
	}
}

// decide decides the request in c. It never returns an error.
func (s *Service) decide(ctx context.Context, wait bool, c *call) (decided bool, _ error) {
	if s.find(c) {
		left := tier.NoWait
		if wait {
			left = s.opts.Wait
		}
		if !s.lookUp(ctx, c, left) {
			return false, nil
		}
	}
	if s.describe(c) {
		ok, err := c.policy.Decide(ctx, wait)
		if !ok {
			return false, nil
		}
		s.limit(c, err)
	}
	s.settle(c)
	return true, nil
}

// settle ends what was decided.
func (s *Service) settle(c *call) {
	if c.result.passes() {
		s.addUpstream(c)
	}
	s.opts.Meters.Authorized(c.result)
}

// find finds the credential of a request, and reports whether to ask whose it is.
func (s *Service) find(c *call) (ask bool) {
	if c.step > atStart {
		return c.step < atCaller
	}
	c.step = atCaller
	if c.in.crowded {
		s.opts.Log.Error("the context of a route has too many entries, so its requests are answered with an error", zap.Int("most", maxContext))
		c.result = Misconfigured
		return false
	}
	if c.in.oversized {
		c.result = Oversized
		return false
	}
	key, p, behind := find(&c.in, s.opts.Credentials)
	switch p {
	case malformed:
		c.result = Malformed
		return false
	case absent:
		if anonymous, _ := c.in.says("anonymous"); anonymous != "true" {
			c.result = Missing
			return false
		}
		c.id, c.tier = tier.AnonymousPrefix+s.anonymous(c), s.opts.Decider.Rules().TierOf(nil)
		c.result = Anonymous
		return false
	}
	ok := false
	if c.others, ok = appendOthers(c.others, key, &c.in, behind); !ok {
		c.result = Malformed
		return false
	}
	c.key, c.fingerprint = key, s.opts.Secrets.Fingerprint(key)
	c.step = atKey
	return true
}

// lookUp finds the subjects of all API keys of a request, which share the wait. It
// reports false if wait is tier.NoWait and a source must be asked. The next call
// continues with the same key.
func (s *Service) lookUp(ctx context.Context, c *call, wait time.Duration) (done bool) {
	var start time.Time
	if wait > 0 && len(c.others) > 0 {
		start = time.Now()
	}
	resolve := func(key, fingerprint string) (a tier.Answer, ok bool) {
		left := wait
		if !start.IsZero() {
			left = max(0, wait-time.Since(start))
		}
		return s.opts.Secrets.Resolve(ctx, s.subjects(), fingerprint, s.plain(key), left)
	}
	if c.step == atKey {
		a, ok := resolve(c.key, c.fingerprint)
		if !ok {
			return false
		}
		s.identify(c, a)
		c.step = atOthers
	}
	for ; c.checked < len(c.others) && c.result == Authenticated; c.checked++ {
		key := c.others[c.checked]
		a, ok := resolve(key, s.opts.Secrets.Fingerprint(key))
		switch {
		case !ok:
			return false
		case a.Subject != nil && a.Subject.ID != c.id:
			c.result = Ambiguous
		case a.Subject == nil && a.Unavailable:
			c.result = Unavailable
		}
	}
	c.step = atCaller
	return true
}

// noSubjects is a tier.Resolver without subjects.
type noSubjects struct{}

// Resolve implements [tier.Resolver].
func (noSubjects) Resolve(context.Context, tier.Key, time.Duration) (a tier.Answer, ok bool) {
	return tier.Answer{}, true
}

// subjects returns the resolver that finds the subject of a credential.
func (s *Service) subjects() tier.Resolver {
	if s.opts.Subjects != nil {
		return s.opts.Subjects
	}
	if directory := s.opts.Decider.Rules().Tiers(); directory != nil {
		return directory
	}
	return noSubjects{}
}

// plain returns an API key for a source that has to be asked by it, else "".
func (s *Service) plain(key string) string {
	if s.opts.PlainKeys {
		return key
	}
	return ""
}

// identify says who calls by what is known of the API key.
func (s *Service) identify(c *call, a tier.Answer) {
	switch {
	case a.Subject == nil && a.Unavailable:
		c.result = Unavailable
		return
	case a.Subject == nil:
		c.result = Unknown
		return
	}
	c.subject, c.id, c.tier = a.Subject, a.Subject.ID, s.opts.Decider.Rules().TierOf(a.Subject)
	if a.Subject.Disabled {
		c.result = Disabled
		return
	}
	c.caller = policy.Caller{Fingerprint: c.fingerprint, Answer: a}
	c.request.Caller = &c.caller
	c.result = Authenticated
}

// describe finds the limits that the context names, and reports whether there are
// any to take.
func (s *Service) describe(c *call) (take bool) {
	if c.step == atLimits {
		return true
	}
	if !c.result.passes() {
		return false
	}
	domain, ok := c.in.says("domain")
	if !ok {
		return false
	}
	switch err := s.addDescriptors(c, domain); {
	case errors.Is(err, errValues):
		c.result = Oversized
		return false
	case err != nil:
		s.opts.Log.Error("the context of a route cannot be understood, so its requests are answered with an error",
			zap.String("domain", domain[:min(len(domain), maxShown)]), zap.Error(err))
		c.result = Misconfigured
		return false
	}
	if len(c.request.Descriptors) == 0 {
		return false
	}
	s.opts.Decider.Begin(&c.policy, c.request)
	c.step = atLimits
	return true
}

// limit says what has become of the limits, by the verdict unless there is err.
func (s *Service) limit(c *call, err error) {
	if err != nil {
		c.result = Undecided
		if tooMany := new(policy.TooManyLimitsError); errors.As(err, &tooMany) {
			s.opts.Log.Error("the descriptors of a route meet too many limits, so its requests are answered with an error",
				zap.String("domain", c.request.Domain[:min(len(c.request.Domain), maxShown)]), zap.Error(err))
			c.result = Misconfigured
		}
		return
	}
	c.limited = true
	v := c.policy.Verdict()
	if v.Degraded {
		s.opts.Meters.DegradedAnswer(v.DegradedBy())
	}
	c.fields = s.opts.Headers.Append(c.fields, v, time.Now)
	if v.Allowed {
		return
	}
	c.fields = append(c.fields, answer.Header{Name: "content-type", Value: answer.DenialType(v)})
	c.body = answer.AppendDenial(c.body, v)
	c.result = Limited
}

const (
	// maxValues bounds what the values of the descriptors of one request cost together,
	// in bytes. A template of a few kilobytes can name a long value hundreds of times,
	// and each of them is copied, compared and digested.
	maxValues = 512 << 10
	// lineCost is what it costs, in such bytes, to compare the name of one header field.
	lineCost = 16
	// maxShown bounds what a log line repeats of a domain, in bytes.
	maxShown = 128
)

// errValues says that the values of the descriptors exceed maxValues.
var errValues = errors.New("the values of the descriptors are too long")

// spend counts n bytes of work on values. It reports false if they are too many.
func (c *call) spend(n int) bool {
	c.spent += n
	return c.spent <= maxValues
}

// addDescriptors makes the descriptors of a request by the context of its route. It
// returns errValues as soon as their values exceed maxValues.
func (s *Service) addDescriptors(c *call, domain string) error {
	if domain == "" {
		return fmt.Errorf("domain: it is empty")
	}
	text, ok := c.in.says("descriptors")
	if !ok {
		text = defaultTemplate
	}
	t, err := s.templates.get(text, s.opts.Secrets)
	if err != nil {
		return err
	}
	cost := uint64(1)
	if text, ok := c.in.says("cost"); ok {
		if cost, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("cost: not a number from 0 to 2^64-1")
		}
	}
	total := 0
	for _, d := range t {
		total += len(d)
	}
	if cap(c.entries) < total {
		// All at once: the descriptors below point into it.
		c.entries = make([]descriptors.Entry, 0, total)
	}
	c.request.Domain = domain
	for _, d := range t {
		first := len(c.entries)
		for i := range d {
			value, ok := s.value(c, &d[i])
			if c.spent > maxValues {
				return errValues
			}
			if !ok {
				clear(c.entries[first:])
				c.entries = c.entries[:first]
				break
			}
			c.entries = append(c.entries, descriptors.Entry{Key: d[i].key, Value: value})
		}
		if last := len(c.entries); last > first {
			c.request.Descriptors = append(c.request.Descriptors, policy.Descriptor{Entries: c.entries[first:last:last], Cost: cost})
		}
	}
	return nil
}

// value returns the value of an entry. No API key is in it. If the values of the call
// exceed maxValues, value reports false.
func (s *Service) value(c *call, e *entry) (value string, ok bool) {
	hidden := e.secret
	switch e.value {
	case fromText:
		value = e.text
	case fromKey:
		return c.fingerprint, c.fingerprint != ""
	case fromHeader:
		if !c.spend(lineCost * len(c.in.fields.lines)) {
			return "", false
		}
		if value, ok = s.header(c, e.text); !ok {
			return "", false
		}
		hidden = hidden || s.hides(e.text) || c.key != "" && strings.Contains(value, c.key)
	case fromContext:
		if value, ok = c.in.says(e.text); !ok {
			return "", false
		}
	default:
		if value = s.plainValue(c, e); value == "" {
			return "", false
		}
	}
	if !c.spend(len(value)) {
		return "", false
	}
	if !hidden {
		return value, true
	}
	value = s.opts.Secrets.Key(value)
	fingerprint := s.opts.Secrets.Fingerprint(value)
	if e.secret && s.opts.PlainKeys {
		c.request.Plain = append(c.request.Plain, policy.PlainKey{Fingerprint: fingerprint, Key: value})
	}
	return fingerprint, true
}

// plainValue returns a value that holds no key, empty where there is none.
func (s *Service) plainValue(c *call, e *entry) string {
	switch e.value {
	case fromSubject:
		return c.id
	case fromTier:
		return c.tier
	case fromAddress:
		if a := s.addressOf(c); a.IsValid() {
			return a.String()
		}
	case fromMaskedAddress:
		if p := s.masked(c); p.IsValid() {
			return p.String()
		}
	case fromMethod:
		return c.in.method
	case fromPath:
		return c.in.plainPath()
	case fromHost:
		return strings.ToLower(c.in.host)
	case fromLabel:
		if c.subject != nil {
			return c.subject.Labels()[e.text]
		}
	}
	return ""
}

// header returns a header field, or the part of the request that a pseudo header
// is. Where keys may stand in queries, a URL in a header has none.
func (s *Service) header(c *call, name string) (value string, ok bool) {
	switch name {
	case ":method":
		value = c.in.method
	case ":path":
		value = c.in.plainPath()
	case ":authority", "host":
		value = strings.ToLower(c.in.host)
	default:
		value, lines := c.in.fields.get(name, ",")
		for _, credential := range s.opts.Credentials {
			if credential.Kind == Query {
				value, _, _ = strings.Cut(value, "?")
			}
		}
		return value, lines > 0
	}
	return value, value != ""
}

// hides reports whether a header may hold an API key.
func (s *Service) hides(name string) bool {
	if s.opts.Secrets.Hides(name) {
		return true
	}
	for _, c := range s.opts.Credentials {
		if c.Kind == Header && c.Name == name {
			return true
		}
	}
	return false
}

// addressOf returns the client's address.
func (s *Service) addressOf(c *call) netip.Addr {
	if !c.located {
		c.located = true
		c.address = c.in.address(s.opts.Address)
	}
	return c.address
}

// masked returns what counts of the client's address, not valid if it has none.
func (s *Service) masked(c *call) netip.Prefix {
	a := s.addressOf(c)
	bits := a.BitLen()
	if a.Is6() && s.opts.IPv6Prefix > 0 {
		bits = min(s.opts.IPv6Prefix, bits)
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// anonymous names whoever calls without a credential.
func (s *Service) anonymous(c *call) string {
	if p := s.masked(c); p.IsValid() {
		return p.Addr().String()
	}
	return "unknown"
}

// addUpstream says what the upstream gets to know.
func (s *Service) addUpstream(c *call) {
	u := &c.upstream
	id := c.id
	if c.subject == nil {
		id = "" // an address is nobody
	}
	u.say(s.opts.SubjectHeader, id)
	u.say(s.opts.TierHeader, c.tier)
	for _, l := range s.opts.LabelHeaders {
		label := ""
		if c.subject != nil {
			label = c.subject.Labels()[l.Label]
		}
		u.say(l.Header, label)
	}
	u.removeCredentials(&c.in, s.opts.Credentials, s.opts.RemoveCredential)
}
