// Package httpsource looks subjects up at an HTTP endpoint of the operator. It has the URL and body
// of a question (digest, key or id), TLS, the token and dialing. It has the JSON of an answer, its
// status and content type, and Cache-Control as the age of a record.
//
// # Questions
//
//	GET  <URL>?digest=2c70…      or ?id=acme, after the URL's own query
//
// With [Options.SendKey] it is a POST of {"key":"…"}, the API key itself, or of {"id":"acme"}, for
// an endpoint that knows keys by other digests. URLs get into logs, so no URL has the key. It is sent
// only over TLS or to this machine. [Options.Token] is sent as Authorization:
// Bearer. It is read for each question, and [Options.TLS] for each connection, so that
// both may change.
//
// # Answers
//
//	200 {"subject":"acme","tier":"pro","disabled":false,"overrides":{…},"labels":{…},"limits":{…}}
//	200 {"subject":null}      the key is unknown
//	404 {"subject":null}      the same
//
// Only subject is required. The other members may be missing or null. The content type is
// application/json, or a type that ends in +json. Members of other names are ignored, because
// endpoints often return all fields of a customer.
//
// A key is unknown only if the JSON says so. A wrong path or a gateway without a backend answers with
// 404 too, and a wrong handler with 204. If such answers counted, one bad deployment would make all
// keys unknown. They are errors, so the cache keeps its records (see package tier), and metrics and
// logs show the errors.
//
// Every other status is an error that names it. A redirection is not followed, because it
// could send the digest, the token or the key to another server.
//
// A body above 64 KiB, of another type than JSON, or cut off is an error of
// the source. A malformed record (a name twice, a text in place of an object, something
// after the object) is an error of this record, which wraps [tier.ErrBadRecord]. No error
// contains a digest, the query of the URL, the token, the key, or a part of a body.
//
// # Caching
//
// Cache-Control counts: max-age minus Age becomes [tier.Record.MaxAge]. With no-store,
// no-cache, or a max-age that is zero or invalid, each use needs a new question. Expires
// and s-maxage are ignored, and so is ETag: no question is conditional.
//
// # Connections
//
// Connections use HTTP/1.1 and are kept alive. With HTTP/2 a dead connection would stay
// in use after a question on it timed out. If a connection turns out to be closed, the
// question is sent once more on a new one. It changes nothing, so this is safe. Proxies
// of the environment are not used.
package httpsource
