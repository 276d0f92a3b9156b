// Package settings reads the settings of the service, once, at start: from a YAML file and the
// variables SLIDEGATE_…. [Settings] holds each value parsed and checked: listeners, TLS, the store
// and its scopes, Redis URLs, tiers, header styles, credentials of ext_authz, drop-in, comparison,
// drain and logs. [Describe] lists all settings for the reference, and [ReadTokens] reads tokens of
// the admin API.
//
// [Default] knows all defaults. A settings file overrides them, and the
// environment overrides the file. The variable of a setting is its path in capitals:
// store.redis.url is SLIDEGATE_STORE_REDIS_URL. Commas separate the items of a list. A
// variable that is set but empty sets the empty value. Relative paths are relative to the
// working directory.
//
// The file settings.full.yaml sets every setting to its default, with comments.
//
// [Load] reports all problems of the file and of the environment at once:
//
//	environment: SLIDEGATE_STORE_TIMEOUT: "15" has no unit: write 15s or 15ms
//
// No problem and no printed setting shows a secret: the key of the digests, a password, a token, or one
// in a URL.
package settings
