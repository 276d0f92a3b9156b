package dynamic

// A Key is a key of the dynamic metadata, for docs/reference/answers.md.
type Key struct{ Name, When, Value string }

// Keys are all keys of the dynamic metadata: those that this package appends, and those that one
// filter adds.
var Keys = []Key{
	{"limit", "a rule limits the request", "number: the requests that the window admits"},
	{"policy", "with `limit`, unless it is `sliding`", "the policy of the limit"},
	{"remaining", "with `limit`", "number: the quota that remains"},
	{"reserved", "the limit has a budget", "number: the quota that requests have reserved"},
	{"retry_after", "on denials that a wait helps", "number: seconds, as in `Retry-After`"},
	{"rule", "with `limit`", "the name of the rule"},
	{"subject", "the customer is known", "its id"},
	{"tier", "a rule counts by customer", "its tier"},
	{"key_digest", "rate limits: no customer has the API key", "the first 12 digits of the digest of the key"},
	{"shadowed", "a rule in shadow mode has no quota left", "the name of that rule"},
	{"caller_unresolved", "the customer source did not answer", "`true`"},
	{"degraded", "a fallback answer: the store did not decide", "`true`"},
	{"degraded_by", "with `degraded`", "`allow`, `deny` or `local`, as `on_store_error` says"},
	{"metadata", "rules with quota left have `metadata`", "the metadata of these rules, merged"},
	{"reason", "authorization: the request is refused", "as in the table above"},
	{"labels", "authorization: the customer has labels", "an object: name and value"},
	{"limit_NAME", "authorization alone: the tier carries this limit; `limit` without a name", "an object: `requests_per_unit` and `unit`"},
	{"domain", "in place of envoyproxy/ratelimit, with `RESPONSE_DYNAMIC_METADATA`", "the domain; the API keys in this and the next two are `***`"},
	{"descriptors", "with `domain`", "the descriptors"},
	{"hitsAddend", "with `domain`", "number: the cost"},
}
