// Package console serves the pages of the admin port for people: what happens now, what a customer
// has used and why it is denied, and what an operator has reset. It has HTML templates, SVG charts,
// log-in, forms, style sheet and script of the pages overview, rules, subject, top, denials, try
// and audit.
//
// The server renders each page in full, so reading needs no script. The script console.js only
// repeats the request of the page that is open and replaces its live parts. A page loads nothing
// from another host, and its content security policy allows one style sheet and one script.
//
// # Typed text
//
// A person may type an API key into any field. So the console repeats typed text only if it
// recognizes it: the id of a known subject, an address, a digest, the name of a rule, an
// entry that a rule names, a route that was denied. Forms are sent with POST, and the answer redirects to an address with only
// recognized text. An API key in the search box becomes its digest at once.
//
// # Text of clients
//
// Names, routes and subjects may contain anything. Each is shown in a separate element
// direction, cut to a bound, with control characters and marks of direction spelled out.
package console
