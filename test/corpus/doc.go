// Package corpus holds configurations with transcripts of what the service
// answers under them. Its test replays every transcript in testdata through
// gRPC, with a clock that the transcript sets.
//
// # A file
//
// A file begins with a comment about its subject. After it come files, each
// behind a line with its name:
//
//	What this shows, and what must come out.
//	-- rules.yaml --
//	domain: edge
//	...
//	-- transcript --
//	at 0s    api_key=k1                             want OK 4
//	    OK [OK per-key 4 of 5 per MINUTE, reset 60]
//	    ratelimit: "per-key";r=4;t=60
//	...
//
// settings.yaml and tiers.yaml are what they are elsewhere; without tiers.yaml
// there are no tiers. All others are the rules, as one directory. Names may have
// a directory in front: later/rules.yaml takes the place of rules.yaml after
// "load later". A file without a transcript only has to load.
//
// warnings holds the warnings of loading, metrics the counters at the end. Without the
// first there must be no warnings. Without the second the counters are not compared.
//
// # A transcript
//
// "load DIR", "store down" and "store up" are lines of their own. "#" begins a
// comment. A request is a time since the start, options of the request in
// brackets, its descriptors, and what must come out:
//
//	at 5s  [hits 2] route=search,api_key=k1 (hits 0) ; tenant=t   want OVER 0! 7 by per-key in 55
//
// Descriptors are separated by " ; " and written as descriptors.Parse reads them,
// {} is one without entries. Options of a descriptor: (hits N), (refund),
// (limit 5 per minute), (limit 5 per 2 minute). Options of the request: [domain NAME], by
// default edge; [hits N]; [json] for POST /json instead of gRPC; [times N] to send it N times
// and show the last answer.
//
// want is written by hand and never by -update: OK, OVER, or error with its gRPC
// code. Then, for each descriptor, what remains, with "!" where it is over the
// limit, "-" where nothing limits it, and "unlimited". Then, where they matter,
// "by" and the rule that speaks, "in" and the seconds of Retry-After, and "shadow"
// and the rule that would have denied.
//
// The indented lines below a request are the whole answer. go test -update writes
// them anew; read the difference before it is kept.
package corpus
