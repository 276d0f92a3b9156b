package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/core/probe"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/glance"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/probelist"
)

func get[T any](ctx context.Context, c *Client, to Instance, path string, values url.Values) (*T, error) {
	out := new(T)
	return out, c.call(ctx, to, http.MethodGet, path+"?"+values.Encode(), nil, out)
}

// Values returns the parameters of a request, without those that are empty.
func Values(of map[string]string) url.Values {
	values := url.Values{}
	for name, value := range of {
		if value != "" {
			values.Set(name, value)
		}
	}
	return values
}

// Denials asks for the last denials, at most limit of those that a filter chooses. whole has the
// answer of each instance of c, and each that of every instance of the service: if c has one instance,
// it answers for those that it knows.
func (c *Client) Denials(ctx context.Context, filter url.Values, limit int) (whole, each []merge.Answer[insight.Denials]) {
	values := maps.Clone(filter)
	values.Set("limit", strconv.Itoa(limit))
	whole = getAll[insight.Denials](ctx, c, "/v1/denials", values)
	if len(whole) == 1 && whole[0].Err == nil && len(whole[0].Value.Instances) > 0 {
		return whole, merge.Split(whole[0].Value)
	}
	return whole, whole
}

// Rules returns the active rules of an instance, at most 10,000.
func (c *Client) Rules(ctx context.Context, to Instance) (*admin.Rules, error) {
	return get[admin.Rules](ctx, c, to, "/v1/rules", url.Values{"limit": {"10000"}})
}

// State returns the state of an instance.
func (c *Client) State(ctx context.Context, to Instance) (*glance.State, error) {
	return get[glance.State](ctx, c, to, "/v1/state", nil)
}

// Top asks for a ranking, as [Client.Denials] does.
func (c *Client) Top(ctx context.Context, values url.Values) []merge.Answer[insight.Top] {
	return getAll[insight.Top](ctx, c, "/v1/top", values)
}

// Alone says in a line that an answer is of one of several instances, which do not know each other. Empty:
// it is not.
func (c *Client) Alone(ctx context.Context, of insight.Instances) string {
	if len(c.Instances) > 1 || len(of) > 0 {
		return ""
	}
	s, err := c.State(ctx, c.Instances[0])
	if err != nil || s.Store.Instances < 2 {
		return ""
	}
	return fmt.Sprintf("Only one of %d instances was asked. To ask all, set admin.peers_key_file in each of them, or name them in --admin.", s.Store.Instances)
}

// getAll asks all instances. If there is one, it answers for those that it knows.
func getAll[T any](ctx context.Context, c *Client, path string, values url.Values) []merge.Answer[T] {
	if len(c.Instances) == 1 {
		values.Set("instances", "all")
	}
	return AskAll(ctx, c, func(ctx context.Context, to Instance) (*T, error) { return get[T](ctx, c, to, path, values) })
}

// Explain asks the first instance what would happen to a request now.
func (c *Client) Explain(ctx context.Context, request admin.ExplainRequest) (*admin.Explained, error) {
	out := new(admin.Explained)
	return out, c.call(ctx, c.Instances[0], http.MethodPost, "/v1/explain", request, out)
}

// StartProbe starts a probe at the first instance. Those that share its store have it within a second.
func (c *Client) StartProbe(ctx context.Context, request probelist.Request) (*probe.Probe, error) {
	out := new(probe.Probe)
	return out, c.call(ctx, c.Instances[0], http.MethodPost, "/v1/probe", request, out)
}

// Probe returns a probe with what an instance knows of it.
func (c *Client) Probe(ctx context.Context, to Instance, id string) (*probe.Probe, error) {
	return get[probe.Probe](ctx, c, to, "/v1/probe", url.Values{"id": {id}})
}

// Reload makes an instance read its rules and tiers again.
func (c *Client) Reload(ctx context.Context, to Instance) (*admin.Reloaded, error) {
	out := new(admin.Reloaded)
	return out, c.call(ctx, to, http.MethodPost, "/v1/reload", struct{}{}, out)
}

// Reset makes each instance reset what a request names.
func (c *Client) Reset(ctx context.Context, request insight.ResetRequest) []merge.Answer[insight.Reset] {
	return inTurn[insight.Reset](ctx, c, http.MethodPost, "/v1/reset", request)
}

// inTurn calls one instance after another: of those that share a store, the first one changes it.
func inTurn[T any](ctx context.Context, c *Client, method, path string, in any) []merge.Answer[T] {
	all := make([]merge.Answer[T], len(c.Instances))
	for i, to := range c.Instances {
		out := new(T)
		all[i] = merge.Answer[T]{From: to.Name, Value: out, Err: c.call(ctx, to, method, path, in, out)}
	}
	return all
}

// Refresh makes all instances ask the customer source again: for a digest or a subject, or for all
// if both are empty.
func (c *Client) Refresh(ctx context.Context, digest, subject string) error {
	change := map[string]any{"all": true}
	switch {
	case digest != "":
		change = map[string]any{"digest": digest}
	case subject != "":
		change = map[string]any{"subject": subject}
	}
	return Failed(AskAll(ctx, c, func(ctx context.Context, to Instance) (*struct{}, error) {
		return nil, c.call(ctx, to, http.MethodPost, "/v1/tiers/invalidate", change, new(struct{}))
	}))
}

// Bounds of the pages of an answer.
const (
	maxPages    = 1000
	maxLimits   = 100_000
	maxLogPages = 2000
	maxLogs     = 200_000
)

// Usage returns what a caller has used in each instance. Instances that share a store have one answer.
func (c *Client) Usage(ctx context.Context, q insight.Query) []merge.Answer[insight.Usage] {
	all := AskAll(ctx, c, func(ctx context.Context, to Instance) (*insight.Usage, error) { return c.usage(ctx, to, q) })
	return shared(all, func(u *insight.Usage) string { return u.Source })
}

// usage reads all pages of a usage.
func (c *Client) usage(ctx context.Context, to Instance, q insight.Query) (*insight.Usage, error) {
	var whole *insight.Usage
	for range maxPages {
		values := Values(map[string]string{"subject": q.Subject, "address": q.Address, "digest": q.Digest, "descriptor": q.Descriptor, "rule": q.Rule, "cursor": q.Cursor})
		u, err := get[insight.Usage](ctx, c, to, "/v1/usage", values)
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = u
		} else {
			whole.Limits = append(whole.Limits, u.Limits...)
			whole.Problem = cmp.Or(whole.Problem, u.Problem)
		}
		if u.Next == "" || u.Next == q.Cursor {
			whole.Next = ""
			return whole, nil
		}
		if len(whole.Limits) > maxLimits {
			break
		}
		q.Cursor = u.Next
	}
	return nil, errors.New("the list of limits is too long; name a rule with --rule")
}

// Lookup returns the records of a subject or a key in the instance with a name, and in tiers.source.
// Nil: there are none, or they cannot be read.
func (c *Client) Lookup(ctx context.Context, name string, q insight.Query) *admin.TierLookup {
	values := url.Values{}
	switch {
	case q.Digest != "":
		values.Set("digest", q.Digest)
	case q.Subject != "":
		values.Set("id", q.Subject)
	default:
		return nil
	}
	at := slices.IndexFunc(c.Instances, func(i Instance) bool { return i.Name == name })
	if at < 0 {
		return nil
	}
	out, err := get[admin.TierLookup](ctx, c, c.Instances[at], "/v1/tiers/lookup", values)
	if err != nil {
		return nil
	}
	return out
}

// logs reads the logs of rules, or of all rules without names. If there are too many, Next is set.
func (c *Client) logs(ctx context.Context, to Instance, rules []string) (whole *insight.Logs, err error) {
	values := url.Values{}
	if len(rules) > 0 {
		values.Set("rule", strings.Join(rules, ","))
	}
	for range maxLogPages {
		one, err := get[insight.Logs](ctx, c, to, "/v1/logs", values)
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = one
		} else {
			whole.Logs, whole.Next = append(whole.Logs, one.Logs...), one.Next
		}
		if one.Next == "" || len(whole.Logs) > maxLogs {
			break
		}
		values.Set("cursor", one.Next)
	}
	return whole, nil
}
