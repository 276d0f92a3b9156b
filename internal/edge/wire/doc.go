// Package wire reads requests and writes answers in the encoding of protobuf, without the messages
// of its library. [Message] and [Field] read tags, varints and texts; functions named Append… write
// fields, numbers, texts, inner messages, and the values of a Struct.
//
// # Writing
//
// As messages of the library, an answer takes some thirty allocations, and encoding a map
// uses reflection. The functions here append encoded fields to a slice instead. Call them in
// ascending order of field numbers, and of names in a map. Then the result equals the
// deterministic encoding of the library byte for byte.
//
// A function with a parameter write or value calls it to append the fields of an inner
// message. Each length is inserted after its message is written, so nothing is measured
// first. Readers accept the entries of a Struct in any order: internal/edge/ratelimit writes
// them in that of the library, internal/edge/extauthz does not.
//
// # Reading
//
// [Message] returns the fields of a message one by one. A reader that skips the fields that
// it does not need is faster than the library. It also accepts texts that are not UTF-8,
// for which the library refuses the whole message. A [Decoder] reads a whole message in
// this way. [Unreadable] returns the error of grpc-go for a message that cannot be read, so
// clients see no difference.
//
// # Texts
//
// Envoy refuses a whole answer for one text that is not UTF-8, and lets the request pass.
// Texts come from the configuration and from subjects, which are UTF-8. If one is not, the
// functions here write U+FFFD instead of the bad bytes.
package wire
