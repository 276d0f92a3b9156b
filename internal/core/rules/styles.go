package rules

// The styles. Each is one family of header fields.
const (
	StyleRateLimit       = "ratelimit"
	StyleDraft03         = "draft03"
	StyleXRateLimit      = "x-ratelimit"
	StyleXRateLimitEpoch = "x-ratelimit-epoch"
	StyleReference       = "reference"
)
