package extauthz

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/identity"
	"github.com/slidegate/slidegate/pkg/descriptors"
)

const (
	// maxValues bounds the work on all values of one request's descriptors, in bytes. A
	// template of a few kilobytes can name a long value hundreds of times, and each one is
	// copied, compared and digested.
	maxValues = 512 << 10
	// lineCost is the work of comparing the name of one header field, in the same unit.
	lineCost = 16
)

var errValues = errors.New("the values of the descriptors are too long")

// spend counts n bytes of work on values. It reports false above maxValues.
func (c *call) spend(n int) bool {
	c.spent += n
	return c.spent <= maxValues
}

// addDescriptors makes the descriptors of a request from the context of its route. It
// returns errValues as soon as their values exceed maxValues.
func (s *Service) addDescriptors(c *call, domain string) error {
	if domain == "" {
		return fmt.Errorf("domain: it is empty")
	}
	text, ok := c.in.contextOf("descriptors")
	if !ok {
		text = defaultTemplate
	}
	t, err := s.templates.get(text, s.opts.Secrets)
	if err != nil {
		return err
	}
	cost := uint64(1)
	text, priced := c.in.contextOf("cost")
	if priced {
		if cost, err = strconv.ParseUint(text, 10, 64); err != nil {
			return fmt.Errorf("cost: not a number from 0 to 2^64-1")
		}
	}
	total := 0
	for _, d := range t {
		total += len(d)
	}
	if cap(c.entries) < total {
		// It must not grow below: the descriptors point into it.
		c.entries = make([]descriptors.Entry, 0, total)
	}
	c.request.Domain = domain
	attempt := s.opts.Decider.Rules().AttemptEntry(domain)
	for _, d := range t {
		first := len(c.entries)
		for i := range d {
			value, ok := s.value(c, &d[i])
			if c.spent > maxValues {
				return errValues
			}
			if !ok && (d[i].optional || d[i].key == attempt) {
				continue
			}
			if !ok {
				clear(c.entries[first:])
				c.entries = c.entries[:first]
				break
			}
			c.entries = append(c.entries, descriptors.Entry{Key: d[i].key, Value: value})
		}
		if last := len(c.entries); last > first {
			c.request.Descriptors = append(c.request.Descriptors, decide.Descriptor{Entries: c.entries[first:last:last], Cost: cost, Unpriced: !priced})
		}
	}
	return nil
}

// value returns the value of an entry. It contains no API key. value reports false if the
// request does not have the value, or if the values of the call exceed maxValues.
func (s *Service) value(c *call, e *entry) (value string, ok bool) {
	hidden := e.secret
	switch e.value {
	case fromText:
		value = e.text
	case fromKey:
		return c.keys.fingerprint, c.keys.fingerprint != ""
	case fromHeader:
		if !c.spend(lineCost * len(c.in.fields.lines)) {
			return "", false
		}
		if value, ok = s.header(c, e.text); !ok {
			return "", false
		}
		hidden = hidden || s.hides(e.text) || len(c.keys.all) > 0 && strings.Contains(value, c.keys.all[0])
	case fromContext:
		if value, ok = c.in.contextOf(e.text); !ok {
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
		c.request.Plain = append(c.request.Plain, identity.PlainKey{Fingerprint: fingerprint, Key: value})
	}
	return fingerprint, true
}

// plainValue returns a value that contains no API key, or "" if the request does not have
// it.
func (s *Service) plainValue(c *call, e *entry) string {
	switch e.value {
	case fromSubject:
		return c.caller.id
	case fromTier:
		return c.caller.tier
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
		if c.caller.subject != nil {
			return c.caller.subject.Labels()[e.text]
		}
	}
	return ""
}

// header returns a header field, or the part of the request that a pseudo-header names.
// If an API key may be a query parameter, header cuts off a query in the field: proxies
// copy URLs into headers.
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
			if credential.Kind == settings.CredentialQuery {
				value, _, _ = strings.Cut(value, "?")
			}
		}
		return value, lines > 0
	}
	return value, value != ""
}

// hides reports whether a header may contain an API key.
func (s *Service) hides(name string) bool {
	return s.opts.Secrets.Hides(name) || slices.Contains(s.opts.Credentials, settings.Credential{Kind: settings.CredentialHeader, Name: name})
}

// addressOf returns the client's address. It is invalid if the client has none.
func (s *Service) addressOf(c *call) netip.Addr {
	if !c.client.located {
		c.client.located = true
		c.client.address = c.in.address(&s.opts.Authz)
	}
	return c.client.address
}

// masked returns the client's address, cut to IPv6Prefix. It is invalid if the client has
// no address.
func (s *Service) masked(c *call) netip.Prefix {
	a := s.addressOf(c)
	bits := a.BitLen()
	if a.Is6() && s.opts.IPv6Prefix > 0 {
		bits = min(s.opts.IPv6Prefix, bits)
	}
	return netip.PrefixFrom(a, bits).Masked()
}

// anonymous names a client without a credential by its masked address.
func (s *Service) anonymous(c *call) string {
	if p := s.masked(c); p.IsValid() {
		return p.Addr().String()
	}
	return "unknown"
}
