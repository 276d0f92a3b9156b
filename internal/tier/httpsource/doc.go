// Package httpsource asks an endpoint of the operator's whose API key it is.
//
// # Questions
//
//	GET  <URL>?digest=2c70…      or ?id=acme, behind the URL's own query
//	POST <URL>                   {"digest":"2c70…"} or {"id":"acme"}
//
// With [Options.SendKey] the question is {"key":"…"}, the API key itself: for who
// knows keys by other digests than ours. It is only ever sent by POST, and only
// over TLS or to this machine: URLs end up in the logs of everything on the way.
// [Options.Token] is sent as Authorization: Bearer, and read for each question, so
// that it may change. So may what [Options.TLS] returns, for each connection.
//
// # Answers
//
//	200 {"subject":"acme","tier":"pro","disabled":false,"overrides":{…},"labels":{…}}
//	200 {"subject":null}      nobody has it
//	404 {"subject":null}      the same
//	304                       the record that we have still holds
//
// Only subject must be there; the others may be missing or null. The content type
// is application/json, or one that ends in +json. Members of other names are
// ignored: endpoints often return all that they know of a customer, and a later
// version that reads more must not need another endpoint.
//
// Nobody has a key only if the JSON says so. A 404 alone is also what a wrong path
// or a gateway without a backend answers, and a 204 what a stray handler does: were
// that believed, one bad deployment would turn every customer into a stranger. As
// an error it leaves everybody what he was (see package tier), and shows.
//
// Every other status is an error that names it. A redirection is one too: it is
// followed nowhere, since it could take the digest, the token or the key to
// somebody else.
//
// A body above [Options.MaxBytes], of another type than JSON's, or cut off is an
// error of the source. JSON that is no record (a name twice, a text where there
// should be an object, something behind it) is an error of this record alone and
// wraps [tier.ErrBadRecord]. No error has a digest, the query of the URL, the token,
// the key, or anything of a body in it.
//
// # Caching
//
// Cache-Control is honoured: max-age (less Age) becomes [tier.Record.MaxAge]; no-store,
// no-cache and a max-age that is zero or cannot be read mean that the record must
// be asked for again at each use. Expires and s-maxage are ignored. A GET that has
// an ETag from before sends If-None-Match, and a 304 keeps the record. A POST does
// not: RFC 9110 knows no 304 for it.
//
// # Connections
//
// HTTP/1.1, kept alive. Not HTTP/2: there a question that times out would leave the
// connection that it was lost on to all others. A question whose connection turns
// out to be closed is asked once more on a new one, which does no harm: it changes
// nothing. No proxy is used, whatever the environment says.
package httpsource
