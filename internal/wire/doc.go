// Package wire reads requests and writes answers in the encoding of protobuf,
// without the objects of its library.
//
// # Writing
//
// An answer is some thirty objects as messages of the protobuf library, all of
// them garbage once they are encoded, and encoding a map goes through reflection.
// The functions here append encoded fields to a slice instead. Who calls them
// with ascending numbers, and with ascending names where there is a map, gets
// byte for byte what the library's deterministic encoding gives.
//
// A function that takes another one calls it to append the fields of a message
// inside. Entries of a Struct need no order for their reader; internal/ratelimit
// writes them in the library's, internal/extauthz does not. Lengths are put in front
// afterwards, so nothing is measured first.
//
// # Reading
//
// [Message] gives the fields of a message one by one. Who reads only the fields
// that are needed, and takes texts as they are, is faster than the library and
// does not refuse a message for a byte that nobody looks at. A [Decoder] does so with
// a whole message. What cannot be read is [Unreadable] in the words of grpc-go, so
// that it makes no difference to clients who reads.
//
// # Texts
//
// A reader refuses the whole message for one text that is not UTF-8, and Envoy
// then lets the request pass. Texts come from configuration and from subjects,
// which are UTF-8; if one ever is not, it is mended here.
package wire
