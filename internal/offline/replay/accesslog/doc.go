// Package accesslog reads access logs: which requests came, when, and what is known of each. It has
// the formats of Envoy, nginx, Apache and Caddy, text and JSON, with their times and the operators
// of Envoy such as %REQ()%. It also has gzip, prefixes of container runtimes and syslog, and the
// order of several files.
//
// An [Attribute] names one property of a request, in the words of Envoy's own access log formats,
// for example REQ(x-tenant) or PATH(NQ). The caller says which attributes it wants. A [Record] has
// a value for each of them, and the value says whether the request had none, or whether the format
// cannot say.
//
//	r, err := accesslog.Open(accesslog.Options{Paths: []string{"access.log.gz"}, Want: []accesslog.Attribute{accesslog.PathOnly}})
//	for {
//		record, err := r.Next() // io.EOF after the last one
//	}
//
// # Formats
//
// A file is JSON, text in a format of Envoy, or text in a format of nginx, Apache or Caddy. If the
// caller names no format, each file gets the one by which most of its first lines can be read. The
// formats of Envoy's configuration, Options.Written, come before those that are known. In
// JSON a field is found by its name, and in an object by a name such as request.uri. The value of
// an array of strings is the strings with commas between them, as Envoy joins the values of a
// header. All lines that encoding/json reads are read. Values that the caller does not want are not
// checked.
//
// In text, a client may send a header with the text that separates values. If a line can be read in
// two ways, it is broken.
//
// Logs write an absent value as -, as null or as nothing. So a header that is empty, or is a single
// -, counts as absent. A field that a line of JSON lacks is [Absent] if an earlier line of the file
// has it, else [Unreported].
//
// An attribute is also known if it follows from another one without loss: PATH(NQ) from REQ(:path),
// but not the reverse. Limits apply before Envoy rewrites a path. So [Path] is the original path
// if the log has it.
//
// # Prefixes
//
// Container runtimes, syslog and log shippers write something before each line, or put the line into
// a field of JSON. The first lines of a file decide
// which of the known prefixes its lines have. A line without it is broken, and so are the parts of a
// line of more than 16 KiB, which containerd, CRI-O and Docker split.
//
// # Times
//
// Envoy writes when a request started. nginx and Caddy write when it ended: its start is the end
// without the duration. If the log has no duration, the time is the end, and [Stats] counts it. A
// number at the end of a known format is a duration only if it is written as nginx does.
//
// Lines are written at the end of requests, so they are not in the order of the starts. A record
// waits until the log has a line that is Options.Reorder later. Several files are read together:
// the next line is always of the file that has come least far in time. A record that comes after
// its turn keeps its time, and counts as late. A line that is more than an hour ahead has no
// effect on the order until a second line is as far. So one wrong time makes no other record late.
//
// # Bounds
//
// Options.MaxWaiting bounds what waits. A line has at most 1 MiB. Times are from 1970 to 2100. A line
// beyond these bounds is broken. The first ten broken lines are kept, each with the reason. A
// reason quotes nothing of the line, because lines may have API keys.
//
// # Goroutines
//
// Each open file has one goroutine, which reads and parses, so that the caller decides meanwhile. A
// packed file has one more, which unpacks. Close ends them.
package accesslog
