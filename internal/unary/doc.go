// Package unary is a gRPC server for unary methods. Framing and header compression
// are those of golang.org/x/net/http2; status, codes, metadata, codecs, interceptors
// and the descriptors of services are those of grpc-go, and work unchanged. What it
// leaves out are streams, and with them most of what a call costs.
//
// # Why
//
// grpc-go hands every call from the goroutine that reads to one that handles, and
// the answer from that one to one that writes: three wake-ups, which cost several
// times what it takes to decide a rate limit. Here a call that needs not wait is
// answered by the goroutine that has read it ([Handler]), and what was answered since
// the last read leaves in one write.
//
// # A connection
//
// Each has one goroutine, which reads. It goes through these states, of which the
// last four are the phases in lifetime.go:
//
//	handshake → opening → serving → told → leaving → closed
//	                         └──────────────────→ failed → closed
//
// In these it does the following.
//
//   - handshake: TLS, where there is any, and the client's preface. Until then the
//     client may be anything, and is hung up on without a word.
//   - opening: ours are SETTINGS and a larger window. The client's first frame has
//     to be SETTINGS.
//   - told: a GOAWAY has said that the client is to go, because of the connection's
//     age, because it is idle, or because the server stops. Its number is the highest
//     there is, and a PING follows: what the client sends before it answers that, or for
//     5 s, is served.
//   - leaving: a second GOAWAY names the last call that is served. Once that is
//     answered our side is closed, and then the client has a second to close its own.
//   - failed: the client has broken a rule of the connection. A GOAWAY says which;
//     what it sends then is read for a second, or up to 1 MiB, unseen, because to close
//     with something unread would take the GOAWAY back.
//
// # A call
//
// A stream opens with a header block, which is decoded into memory of the connection
// and says at once whether there will be a handler: see refuse. DATA is gathered
// until the request ends; nearly always it is one frame, whose memory is used as it
// is. Then
//
//   - the method's [Handler] answers without waiting, on this goroutine; or
//   - the Handler does not decide, and is called again on a goroutine of its own. Every
//     method without a Handler runs on such a goroutine too. Its context ends with
//     grpc-timeout, with RST_STREAM and with the connection.
//
// So a call that waits holds up no other one. A request with more than one message,
// or none, is refused; so is DATA that is not as long as content-length says. Who
// does not speak gRPC (HTTP 4xx) is answered at the end of the request, others at
// once, with RST_STREAM (NO_ERROR) behind it where the request has not ended.
//
// # Who writes when
//
// Frames are appended to one buffer of the connection, under its lock. The goroutine
// that reads writes that buffer to the socket whenever it has handled everything
// that it has read and would wait for more (flushing), and when 32 KiB have gathered.
// A handler that has finished does so at once. Whoever finds another one writing
// leaves it what it has: the other one goes on until nothing is left. Nobody holds
// the lock while it writes.
//
// DATA goes out as the client's windows allow; what does not fit waits in its stream,
// the oldest first, and the stream counts as open.
//
// # Bounds
//
// Of one connection, unless something else is said:
//
//   - Options.MaxStreams open streams, those included that were reset while a handler
//     runs for them still. More are refused (REFUSED_STREAM).
//   - Options.MaxMessageBytes for a message, half of it for a compressed one as it is
//     sent. That may unpack to 512 KiB, or to 64 times its length. Messages that are
//     not whole, and the metadata of calls without a Handler, take that and 1 MiB
//     together; a client that sends more is answered RESOURCE_EXHAUSTED.
//   - Options.MaxHeaderBytes for a header list (RESOURCE_EXHAUSTED), twice that for
//     how it is encoded (the end of the connection). 4 KiB for the table of either
//     side.
//   - 16 KiB for a frame; 64 KiB and 1 MiB for the windows of a stream and of the
//     connection.
//   - Frames that are no calls cost a token: PING, SETTINGS and each setting, PRIORITY,
//     WINDOW_UPDATE, RST_STREAM, CONTINUATION, unknown types, DATA that is tiny and not
//     the last. Frames that concern many streams, and messages that unpack to much,
//     cost more; a fault for which the server resets a stream costs ten. There are
//     10,000, of which 2,000 a second come back, and four for each call that was
//     answered. Whoever has none left is told ENHANCE_YOUR_CALM and closed.
//   - PINGs closer together than Options.MinPingInterval, three times without an
//     answer in between: the same, as grpc-go has it.
//   - A client that does not read: once 256 KiB wait for it, or a write does not come
//     to an end, nothing more is read from it, and after Options.WriteTimeout it is
//     closed. What its calls still answer waits, one answer for each stream.
//   - A request that is not whole within its timeout, or 30 s: DEADLINE_EXCEEDED. An
//     answer that has no window for Options.WriteTimeout: CANCEL.
//   - Times: Options.OpenTimeout, KeepaliveTime and KeepaliveTimeout,
//     MaxConnectionIdle, MaxConnectionAge; 5 s for the answer to the PING of a drain,
//     and a second to linger. One goroutine of the server looks at all connections
//     about once a second, so that none needs timers; times are as coarse.
//
// An idle connection holds one goroutine, a buffer of 8 KiB, the two tables, and what
// its calls have left for the next ones: some dozens of streams, and memory for one
// frame, one answer and one header block.
//
// # Errors
//
// What a client does wrong is an error of its connection or of its stream, as RFC
// 9113 says. A panic ends its connection, whether it is in this package or in a handler
// that did not recover. [Meters] count why connections end.
//
// # What differs from grpc-go
//
// Methods that stream are UNIMPLEMENTED. Trailers of requests are accepted. Frames for
// streams that never were, too large windows and bad settings are errors, with a
// GOAWAY. No message, or a second one, is UNIMPLEMENTED. A header list that is too
// large gets an answer instead of a reset, an unknown grpc-encoding the list of those
// that are known. The header that a handler sets leaves with the answer, also with
// grpc.SendHeader. A handler that does not heed the end of its context is not cut off:
// its call is answered when it returns. SETTINGS_MAX_HEADER_LIST_SIZE of a client is
// not heeded. Of compressors there is gzip.
package unary
