// Package compat reads the environment of envoyproxy/ratelimit, so that rls can replace it without
// a change of the environment. It has a table of all variables (REDIS_URL, LOG_LEVEL, USE_STATSD
// and others), the form of each value, and the setting that it becomes. rls env prints the [Row] of
// each.
//
// [Mode] says whether a process is a drop-in: it was started as ratelimit, or SLIDEGATE_COMPAT
// is envoyproxy. [Read] then turns the variables of envoyproxy/ratelimit into values of settings,
// which [settings.Load] takes. Nothing else in rls knows these variables.
//
// # Terms
//
//   - A [Row] is one variable: its value, and what it became.
//   - A variable is ignored if it has an effect in envoyproxy/ratelimit and none here. rls warns of
//     it once, at start. A variable without an effect is not worth a warning.
//   - A variable is refused if rls cannot do what it says. Each is a separate problem, and
//     rls does not start.
//
// # How values are read
//
// Values are read as envoyproxy/ratelimit reads them (kelseyhightower/envconfig): true and false by
// [strconv.ParseBool], numbers with any prefix of Go, times by [time.ParseDuration], lists with
// commas, pairs as k:v,k:v. In two cases rls starts where envoyproxy/ratelimit ends. A variable
// that is set but empty counts as not set if envoyproxy/ratelimit would end because of it. So does a
// port with a value such as tcp://10.0.0.1:8125: Kubernetes sets such variables for services.
//
// # Which value counts
//
// From the weakest to the strongest: the default of rls, the default of envoyproxy/ratelimit, the
// variable of envoyproxy/ratelimit, the settings file, the SLIDEGATE_ variable. If the settings file or
// a SLIDEGATE_ variable says what a refused variable would say, the variable is not refused.
//
// For example, REDIS_SOCKET_TYPE=tcp, REDIS_URL=redis:6379 and REDIS_TLS=true become
// store.redis.url = rediss://redis:6379. With SLIDEGATE_STORE_TYPE=memory besides, all
// three are without effect.
//
// # Secrets
//
// No row, value of a row or problem has a password, a token or a URL with one of them.
package compat
