package transport

// h2specExceptions are the cases that a server does not pass, by server, with the
// reason.
var h2specExceptions = map[string]map[string]string{}

// conformanceExceptions are the patterns of cases that a server does not pass, by
// server, with the reason.
var conformanceExceptions = map[string]map[string]string{}
